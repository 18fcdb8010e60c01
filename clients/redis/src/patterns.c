// SPDX-License-Identifier: Apache-2.0
/*
 * SORT with BY or GET reads the keys that a pattern makes of its elements. SCAN with TYPE
 * looks at the types of those that it comes by. What they will read comes back before.
 *
 * Where a transaction is open, such a command may be run later, when elements and keys
 * are others: all values come back then, and none goes away before it has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "back.h"
#include "databases.h"
#include "patterns.h"
#include "transactions.h"
#include "words.h"

static const char *const sorts[] = { "sort", "sort_ro", NULL };
static const char *const other_types[] = { "list", "set", "zset", "hash", "stream", NULL };

/* ---- SORT ---- */

/* Where the star of a pattern is, or NULL. */
static const char *star_of(const RedisModuleString *pattern)
{
	size_t size;
	const char *bytes = RedisModule_StringPtrLen(pattern, &size);

	return memchr(bytes, '*', size);
}

static int sorts_by_pattern(RedisModuleString **argv, int argc)
{
	for (int i = 2; i < argc; i++)
		if (star_of(argv[i]))
			return 1;
	return 0;
}

/* Brings back what a pattern makes of an element. */
static void bring_element(RedisModuleCtx *ctx, const RedisModuleString *pattern, const char *element, size_t size)
{
	size_t length, before;
	const char *bytes = RedisModule_StringPtrLen(pattern, &length), *star = star_of(pattern);
	RedisModuleString *name;
	char *text = star ? RedisModule_Alloc(length + size) : NULL;

	if (!text)
		return;
	before = star - bytes;
	memcpy(text, bytes, before);
	memcpy(text + before, element, size);
	memcpy(text + before + size, star + 1, length - before - 1);
	name = RedisModule_CreateString(ctx, text, length - 1 + size);
	back_bring(ctx, name);
	RedisModule_FreeString(ctx, name);
	RedisModule_Free(text);
}

static RedisModuleCallReply *elements_of(RedisModuleCtx *ctx, RedisModuleString *name)
{
	RedisModuleKey *key = RedisModule_OpenKey(ctx, name, REDISMODULE_WRITE | REDISMODULE_OPEN_KEY_NOTOUCH);
	int type = RedisModule_KeyType(key);

	RedisModule_CloseKey(key);
	if (type == REDISMODULE_KEYTYPE_LIST)
		return RedisModule_Call(ctx, "LRANGE", "!scc", name, "0", "-1");
	if (type == REDISMODULE_KEYTYPE_ZSET)
		return RedisModule_Call(ctx, "ZRANGE", "!scc", name, "0", "-1");
	return type == REDISMODULE_KEYTYPE_SET ? RedisModule_Call(ctx, "SMEMBERS", "!s", name) : NULL;
}

static void bring_sorted(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	RedisModuleCallReply *elements = elements_of(ctx, argv[1]);
	const char *element;
	size_t size;

	if (!elements)
		return;
	for (size_t i = 0; i < RedisModule_CallReplyLength(elements); i++) {
		element = RedisModule_CallReplyStringPtr(RedisModule_CallReplyArrayElement(elements, i), &size);
		for (int j = 2; element && j < argc; j++)
			bring_element(ctx, argv[j], element, size);
	}
	RedisModule_FreeCallReply(elements);
}

/* ---- SCAN ---- */

/* May it ask for strings? */
static int asks_for_strings(RedisModuleString **argv, int argc)
{
	for (int i = 2; i + 1 < argc; i += 2)
		if (is_word(argv[i], "type") && !is_one_of(argv[i + 1], other_types))
			return 1;
	return 0;
}

/* What is behind SCAN, without types; returns how many words that is. */
static int without_types(RedisModuleString **step, RedisModuleString **argv, int argc)
{
	int count = 0;

	step[count++] = argv[1];
	for (int i = 2; i + 1 < argc; i += 2) {
		if (is_word(argv[i], "type"))
			continue;
		step[count++] = argv[i];
		step[count++] = argv[i + 1];
	}
	return count;
}

static int bring_keys(RedisModuleCtx *ctx, RedisModuleCallReply *keys)
{
	RedisModuleString *name;
	const char *bytes;
	size_t size;
	int came = 0;

	for (size_t i = 0; keys && i < RedisModule_CallReplyLength(keys); i++) {
		bytes = RedisModule_CallReplyStringPtr(RedisModule_CallReplyArrayElement(keys, i), &size);
		name = RedisModule_CreateString(ctx, bytes, size);
		came += back_bring(ctx, name);
		RedisModule_FreeString(ctx, name);
	}
	return came;
}

/* The same step, without a type, until all that it finds is here. */
static void bring_step(RedisModuleCtx *ctx, RedisModuleString **step, int count)
{
	RedisModuleCallReply *found;
	int came;

	do {
		found = RedisModule_Call(ctx, "SCAN", "!v", step, (size_t)count);
		came = 0;
		if (found && RedisModule_CallReplyType(found) == REDISMODULE_REPLY_ARRAY)
			came = bring_keys(ctx, RedisModule_CallReplyArrayElement(found, 1));
		if (found)
			RedisModule_FreeCallReply(found);
	} while (came);
}

static void bring_scanned(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	RedisModuleString **step = RedisModule_Alloc(argc * sizeof(*step));

	bring_step(ctx, step, without_types(step, argv, argc));
	RedisModule_Free(step);
}

/* ---- both ---- */

/**
 * patterns_are_in() - does a command read keys that it does not name?
 * @argv: the command
 * @argc: of how many words
 */
int patterns_are_in(RedisModuleString **argv, int argc)
{
	if (is_one_of(argv[0], sorts))
		return sorts_by_pattern(argv, argc);
	return is_word(argv[0], "scan") && asks_for_strings(argv, argc);
}

/**
 * patterns_bring() - bring back what it will read
 * @ctx: another database may be selected afterwards
 * @argv: a command with patterns
 * @argc: of how many words
 */
void patterns_bring(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	int scan = is_word(argv[0], "scan");

	if (transactions_are_open(ctx)) {
		transactions_name_all();
		back_bring_all(ctx);
		return;
	}
	for (int i = databases_next(ctx, FIRST_DATABASE); i >= 0; i = databases_next(ctx, i))
		scan ? bring_scanned(ctx, argv, argc) : bring_sorted(ctx, argv, argc);
}
