// SPDX-License-Identifier: Apache-2.0
/*
 * A stub gives way to its value. The key keeps its time to live and how long it was idle.
 *
 * A command cannot wait for a value that is late: it is lost then. One that only has to
 * come home stays away until it comes in time.
 *
 * A value that no lender gives back is gone like an evicted one: its key expires now. So
 * the server itself deletes it and tells replicas, the append-only file and whoever
 * watches it, when it may. On a replica the stub stays for the master, whose command then
 * fails on it, rather than to change what is not there.
 */
#include <errno.h>

#include "back.h"
#include "databases.h"
#include "life.h"
#include "names.h"
#include "stub.h"

#define LONG_AGO	1	/* milliseconds since 1970 */

enum whether { NEEDED, HOME };	/* by a command; or it only has to come home */

static void put_string(RedisModuleCtx *ctx, RedisModuleKey *key, const char *bytes, size_t size)
{
	RedisModuleString *value = RedisModule_CreateString(ctx, bytes, size);
	struct life life = life_of(key);

	RedisModule_StringSet(key, value);
	RedisModule_FreeString(ctx, value);
	life_go_on(key, life);
}

static int bring(RedisModuleCtx *ctx, RedisModuleKey *key, const struct stub *stub, enum whether whether)
{
	const char *bytes = stub_read(stub);

	if (bytes) {
		stub_figures.came += !!stub->number;
		put_string(ctx, key, bytes, stub->size);
	} else if (whether == NEEDED || errno == ENOENT) {
		stub_figures.lost++;
		RedisModule_SetAbsExpire(key, LONG_AGO);
	}
	return !!bytes;
}

static int bring_one(RedisModuleCtx *ctx, RedisModuleString *name, enum whether whether)
{
	RedisModuleKey *key;
	struct stub *stub;
	int came;

	if (!names_may_have(names_hash(name)))
		return 0;
	key = RedisModule_OpenKey(ctx, name, REDISMODULE_WRITE | REDISMODULE_OPEN_KEY_NOTOUCH);
	stub = stub_of(key);
	came = stub && bring(ctx, key, stub, whether);
	RedisModule_CloseKey(key);
	return came;
}

/**
 * back_bring() - bring a key's value back for a command, if it is away
 * @ctx: with the key's database selected
 * @name: of the key
 *
 * Return: 1, or 0: it was not away, or is lost.
 */
int back_bring(RedisModuleCtx *ctx, RedisModuleString *name)
{
	return bring_one(ctx, name, NEEDED);
}

/**
 * back_bring_anywhere() - do so in all databases
 * @ctx: another database may be selected afterwards
 * @name: of the key
 *
 * Return: how many have come.
 */
int back_bring_anywhere(RedisModuleCtx *ctx, RedisModuleString *name)
{
	int came = 0;

	for (int i = databases_next(ctx, FIRST_DATABASE); i >= 0; i = databases_next(ctx, i))
		came += back_bring(ctx, name);
	return came;
}

/**
 * back_note() - note a key whose value is to come back
 * @ctx: where
 * @first: of those that are noted
 * @name: of the key; it is copied
 */
void back_note(RedisModuleCtx *ctx, struct back_name **first, const RedisModuleString *name)
{
	struct back_name *one = RedisModule_Alloc(sizeof(*one));
	const char *bytes;
	size_t size;

	bytes = RedisModule_StringPtrLen(name, &size);
	*one = (struct back_name) { RedisModule_CreateString(ctx, bytes, size), *first };
	*first = one;
}

static int bring_noted(RedisModuleCtx *ctx, struct back_name *one, enum whether whether)
{
	struct back_name *next;
	int came = 0;

	for (; one; one = next) {
		next = one->next;
		came += bring_one(ctx, one->name, whether);
		RedisModule_FreeString(ctx, one->name);
		RedisModule_Free(one);
	}
	return came;
}

/**
 * back_go_home() - bring values back that may not be away any more; what is late stays
 * @ctx: with the keys' database selected
 * @first: of back_note(); freed
 */
void back_go_home(RedisModuleCtx *ctx, struct back_name *first)
{
	bring_noted(ctx, first, HOME);
}

static void find(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key, void *data)
{
	if (key && stub_of(key))
		back_note(ctx, data, name);
}

/* What comes back while a table grows may be passed by: until there is none. */
static void bring_all_of_one(RedisModuleCtx *ctx)
{
	RedisModuleScanCursor *cursor = RedisModule_ScanCursorCreate();
	struct back_name *found;
	int came, more;

	do {
		came = 0;
		RedisModule_ScanCursorRestart(cursor);
		do {
			found = NULL;
			more = RedisModule_Scan(ctx, cursor, find, &found);
			came += bring_noted(ctx, found, NEEDED);
		} while (more);
	} while (came);
	RedisModule_ScanCursorDestroy(cursor);
}

/**
 * back_bring_all() - bring all values back
 * @ctx: another database may be selected afterwards
 */
void back_bring_all(RedisModuleCtx *ctx)
{
	for (int i = databases_next(ctx, FIRST_DATABASE); i >= 0; i = databases_next(ctx, i))
		bring_all_of_one(ctx);
}
