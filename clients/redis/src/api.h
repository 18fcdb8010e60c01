/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the modules' interface of Redis and Valkey what this module uses. A server gives its
 * functions by name; docs: Modules API reference.
 */
#ifndef TIDEPOOL_REDIS_API_H
#define TIDEPOOL_REDIS_API_H

#include <stddef.h>

#define REDISMODULE_OK		0
#define REDISMODULE_ERR		1
#define REDISMODULE_APIVER_1	1
#define REDISMODULE_CTX_FLAGS_LUA		(1 << 0)
#define REDISMODULE_CTX_FLAGS_MULTI		(1 << 1)
#define REDISMODULE_CTX_FLAGS_DENY_BLOCKING	(1 << 21)

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

/* FUNCTION(what it returns, its name, what it takes) for each. */
#define API(FUNCTION)										\
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
	FUNCTION(RedisModuleBlockedClient *, BlockClient,						\
		 (RedisModuleCtx *, RedisModuleCmdFunc reply, RedisModuleCmdFunc timeout,		\
		  void (*free_privdata)(RedisModuleCtx *, void *), long long timeout_ms))		\
	FUNCTION(int, UnblockClient, (RedisModuleBlockedClient *, void *privdata))			\
	FUNCTION(void *, GetBlockedClientPrivateData, (RedisModuleCtx *))				\
	FUNCTION(void, Log, (RedisModuleCtx *, const char *level, const char *format, ...))

#define DECLARE(type, name, arguments) extern type (*RedisModule_##name) arguments;
API(DECLARE)
#undef DECLARE

int api_find(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_API_H */
