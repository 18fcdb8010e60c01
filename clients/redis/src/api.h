/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the modules' interface of Redis and Valkey what this module uses. A server gives its
 * functions by name; docs: Modules API reference.
 */
#ifndef TIDEPOOL_REDIS_API_H
#define TIDEPOOL_REDIS_API_H

#include <stddef.h>
#include <stdint.h>

#define REDISMODULE_OK		0
#define REDISMODULE_ERR		1
#define REDISMODULE_APIVER_1	1
#define REDISMODULE_CTX_FLAGS_LUA		(1 << 0)
#define REDISMODULE_CTX_FLAGS_MULTI		(1 << 1)
#define REDISMODULE_CTX_FLAGS_SLAVE		(1 << 3)
#define REDISMODULE_CTX_FLAGS_LOADING		(1 << 13)
#define REDISMODULE_CTX_FLAGS_ACTIVE_CHILD	(1 << 18)
#define REDISMODULE_CTX_FLAGS_IS_CHILD		(1 << 20)
#define REDISMODULE_CTX_FLAGS_DENY_BLOCKING	(1 << 21)
#define REDISMODULE_READ		(1 << 0)
#define REDISMODULE_WRITE		(1 << 1)
#define REDISMODULE_OPEN_KEY_NOTOUCH	(1 << 16)
#define REDISMODULE_KEYTYPE_STRING	1
#define REDISMODULE_KEYTYPE_LIST	2
#define REDISMODULE_KEYTYPE_SET		4
#define REDISMODULE_KEYTYPE_ZSET	5
#define REDISMODULE_KEYTYPE_MODULE	6
#define REDISMODULE_NO_EXPIRE		(-1)
#define REDISMODULE_CMDFILTER_NOSELF	(1 << 0)
#define REDISMODULE_OPTIONS_HANDLE_IO_ERRORS		(1 << 0)
#define REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED	(1 << 1)
#define REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD	(1 << 2)
#define REDISMODULE_REPLY_STRING	0
#define REDISMODULE_REPLY_ARRAY		3
#define REDISMODULE_AUX_AFTER_RDB	(1 << 1)
#define REDISMODULE_EVENT_LOADING			3
#define REDISMODULE_SUBEVENT_LOADING_AOF_START		1
#define REDISMODULE_EVENT_SWAPDB			11
#define REDISMODULE_EVENT_EVENTLOOP			15
#define REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP	0
#define REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP	1
#define REDISMODULE_EVENT_CONFIG			16

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleIO RedisModuleIO;
typedef struct RedisModuleType RedisModuleType;
typedef struct RedisModuleDigest RedisModuleDigest;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleCommandFilter RedisModuleCommandFilter;
typedef struct RedisModuleCommandFilterCtx RedisModuleCommandFilterCtx;
typedef struct RedisModuleScanCursor RedisModuleScanCursor;
typedef struct RedisModuleInfoCtx RedisModuleInfoCtx;
typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef void (*RedisModuleTimerProc)(RedisModuleCtx *ctx, void *data);
typedef void (*RedisModuleScanCB)(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key, void *data);
typedef void (*RedisModuleCommandFilterFunc)(RedisModuleCommandFilterCtx *command);
typedef void (*RedisModuleInfoFunc)(RedisModuleInfoCtx *ctx, int for_crash_report);
typedef struct { uint64_t id, dataver; } RedisModuleEvent;
typedef void (*RedisModuleEventCallback)(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data);

/* What the server does with values of a type of ours. */
typedef struct {
	uint64_t version;
	void *(*rdb_load)(RedisModuleIO *io, int encver);
	void (*rdb_save)(RedisModuleIO *io, void *value);
	void (*aof_rewrite)(RedisModuleIO *io, RedisModuleString *name, void *value);
	size_t (*mem_usage)(const void *value);
	void (*digest)(RedisModuleDigest *digest, void *value);
	void (*free)(void *value);
	int (*aux_load)(RedisModuleIO *io, int encver, int when);
	void (*aux_save)(RedisModuleIO *io, int when);
	int aux_save_triggers;
} RedisModuleTypeMethods;

/* FUNCTION(what it returns, its name, what it takes) for each. */
#define API(FUNCTION)										\
	FUNCTION(int, IsModuleNameBusy, (const char *name))						\
	FUNCTION(void, SetModuleAttribs, (RedisModuleCtx *, const char *name, int ver, int apiver))	\
	FUNCTION(int, CreateCommand, (RedisModuleCtx *, const char *name, RedisModuleCmdFunc function,	\
				      const char *flags, int first, int last, int step))		\
	FUNCTION(int, WrongArity, (RedisModuleCtx *))							\
	FUNCTION(int, ReplyWithError, (RedisModuleCtx *, const char *error))				\
	FUNCTION(int, ReplyWithSimpleString, (RedisModuleCtx *, const char *message))			\
	FUNCTION(int, ReplyWithLongLong, (RedisModuleCtx *, long long number))				\
	FUNCTION(int, ReplyWithStringBuffer, (RedisModuleCtx *, const char *buffer, size_t size))	\
	FUNCTION(int, ReplyWithNull, (RedisModuleCtx *))						\
	FUNCTION(int, ReplyWithArray, (RedisModuleCtx *, long length))					\
	FUNCTION(const char *, StringPtrLen, (const RedisModuleString *, size_t *size))			\
	FUNCTION(int, StringToLongLong, (const RedisModuleString *, long long *number))			\
	FUNCTION(int, GetContextFlags, (RedisModuleCtx *))						\
	FUNCTION(unsigned long long, GetClientId, (RedisModuleCtx *))					\
	FUNCTION(RedisModuleBlockedClient *, BlockClient,						\
		 (RedisModuleCtx *, RedisModuleCmdFunc reply, RedisModuleCmdFunc timeout,		\
		  void (*free_privdata)(RedisModuleCtx *, void *), long long timeout_ms))		\
	FUNCTION(int, UnblockClient, (RedisModuleBlockedClient *, void *privdata))			\
	FUNCTION(void *, GetBlockedClientPrivateData, (RedisModuleCtx *))				\
	FUNCTION(int, SubscribeToServerEvent, (RedisModuleCtx *, RedisModuleEvent, RedisModuleEventCallback)) \
	FUNCTION(void, Log, (RedisModuleCtx *, const char *level, const char *format, ...))

/* Of the transparent mode alone; the last came with Redis 6.2.2. */
#define API_TRANSPARENT(FUNCTION)								\
	FUNCTION(void *, Alloc, (size_t size))							\
	FUNCTION(void, Free, (void *memory))							\
	FUNCTION(RedisModuleString *, CreateString, (RedisModuleCtx *, const char *bytes, size_t size))	\
	FUNCTION(void, FreeString, (RedisModuleCtx *, RedisModuleString *))			\
	FUNCTION(int, SelectDb, (RedisModuleCtx *, int database))				\
	FUNCTION(int, GetSelectedDb, (RedisModuleCtx *))					\
	FUNCTION(RedisModuleKey *, OpenKey, (RedisModuleCtx *, RedisModuleString *name, int mode))	\
	FUNCTION(void, CloseKey, (RedisModuleKey *))						\
	FUNCTION(int, KeyType, (RedisModuleKey *))						\
	FUNCTION(size_t, ValueLength, (RedisModuleKey *))					\
	FUNCTION(char *, StringDMA, (RedisModuleKey *, size_t *size, int mode))			\
	FUNCTION(int, StringSet, (RedisModuleKey *, RedisModuleString *value))			\
	FUNCTION(int, GetLRU, (RedisModuleKey *, long long *idle_ms))				\
	FUNCTION(int, SetLRU, (RedisModuleKey *, long long idle_ms))				\
	FUNCTION(RedisModuleType *, CreateDataType, (RedisModuleCtx *, const char *name, int encver,	\
						     RedisModuleTypeMethods *methods))		\
	FUNCTION(int, ModuleTypeSetValue, (RedisModuleKey *, RedisModuleType *, void *value))	\
	FUNCTION(RedisModuleType *, ModuleTypeGetType, (RedisModuleKey *))			\
	FUNCTION(void *, ModuleTypeGetValue, (RedisModuleKey *))				\
	FUNCTION(void, SaveUnsigned, (RedisModuleIO *, uint64_t number))			\
	FUNCTION(uint64_t, LoadUnsigned, (RedisModuleIO *))					\
	FUNCTION(void, SaveStringBuffer, (RedisModuleIO *, const char *bytes, size_t size))	\
	FUNCTION(char *, LoadStringBuffer, (RedisModuleIO *, size_t *size))			\
	FUNCTION(int, IsIOError, (RedisModuleIO *))						\
	FUNCTION(const RedisModuleString *, GetKeyNameFromIO, (RedisModuleIO *))		\
	FUNCTION(void, EmitAOF, (RedisModuleIO *, const char *command, const char *format, ...))	\
	FUNCTION(RedisModuleCallReply *, Call, (RedisModuleCtx *, const char *command, const char *format, ...))	\
	FUNCTION(void, FreeCallReply, (RedisModuleCallReply *))					\
	FUNCTION(int, CallReplyType, (RedisModuleCallReply *))					\
	FUNCTION(size_t, CallReplyLength, (RedisModuleCallReply *))				\
	FUNCTION(RedisModuleCallReply *, CallReplyArrayElement, (RedisModuleCallReply *, size_t at))	\
	FUNCTION(const char *, CallReplyStringPtr, (RedisModuleCallReply *, size_t *size))	\
	FUNCTION(RedisModuleScanCursor *, ScanCursorCreate, (void))				\
	FUNCTION(void, ScanCursorRestart, (RedisModuleScanCursor *))				\
	FUNCTION(void, ScanCursorDestroy, (RedisModuleScanCursor *))				\
	FUNCTION(int, Scan, (RedisModuleCtx *, RedisModuleScanCursor *, RedisModuleScanCB see, void *data))	\
	FUNCTION(uint64_t, CreateTimer, (RedisModuleCtx *, long long ms, RedisModuleTimerProc, void *data))	\
	FUNCTION(void, SetModuleOptions, (RedisModuleCtx *, int options))			\
	FUNCTION(int, RegisterInfoFunc, (RedisModuleCtx *, RedisModuleInfoFunc))		\
	FUNCTION(int, InfoAddSection, (RedisModuleInfoCtx *, const char *name))			\
	FUNCTION(int, InfoAddFieldULongLong, (RedisModuleInfoCtx *, const char *name, unsigned long long))	\
	FUNCTION(int, GetServerVersion, (void))							\
	FUNCTION(float, GetUsedMemoryRatio, (void))						\
	FUNCTION(int, AvoidReplicaTraffic, (void))						\
	FUNCTION(RedisModuleCommandFilter *, RegisterCommandFilter,				\
		 (RedisModuleCtx *, RedisModuleCommandFilterFunc, int flags))			\
	FUNCTION(int, CommandFilterArgsCount, (RedisModuleCommandFilterCtx *))			\
	FUNCTION(RedisModuleString *, CommandFilterArgGet, (RedisModuleCommandFilterCtx *, int at))	\
	FUNCTION(int *, GetCommandKeys, (RedisModuleCtx *, RedisModuleString **argv, int argc, int *count))	\
	FUNCTION(RedisModuleCtx *, GetDetachedThreadSafeContext, (RedisModuleCtx *))		\
	FUNCTION(long long, GetAbsExpire, (RedisModuleKey *))					\
	FUNCTION(int, SetAbsExpire, (RedisModuleKey *, long long ms))

#define DECLARE(type, name, arguments) extern type (*RedisModule_##name) arguments;
API(DECLARE)
API_TRANSPARENT(DECLARE)
#undef DECLARE

int api_find(RedisModuleCtx *ctx);
int api_find_transparent(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_API_H */
