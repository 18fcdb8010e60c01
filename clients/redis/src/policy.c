// SPDX-License-Identifier: Apache-2.0
/*
 * A value that is away may be gone when its lender is. Only who lets the server evict a
 * key has said that this may be. An LFU policy does not keep how long a key was idle.
 */
#include <stdlib.h>
#include <string.h>

#include "policy.h"

#define VERSION_7	0x00070000	/* it has SORT_RO */

static const struct {
	const char *name;
	enum policy policy;
} policies[] = {
	{ "allkeys-lru", POLICY_ALL }, { "allkeys-random", POLICY_ALL }, { "volatile-lru", POLICY_VOLATILE },
	{ "volatile-random", POLICY_VOLATILE }, { "volatile-ttl", POLICY_VOLATILE },
};

/* Which the filter and its errands know by their names. */
static const char *const commands[] = { "multi", "sort", "scan", "client", "config", "sort_ro" };

static enum policy policy_of(const char *name, size_t size)
{
	for (size_t i = 0; name && i < sizeof(policies) / sizeof(policies[0]); i++)
		if (size == strlen(policies[i].name) && !memcmp(name, policies[i].name, size))
			return policies[i].policy;
	return POLICY_NONE;
}

/**
 * policy_look() - ask the server
 * @ctx: of a command, a timer or the module's load
 */
enum policy policy_look(RedisModuleCtx *ctx)
{
	RedisModuleCallReply *reply = RedisModule_Call(ctx, "CONFIG", "cc", "GET", "maxmemory-policy");
	enum policy policy = POLICY_NONE;
	const char *name;
	size_t size;

	if (reply && RedisModule_CallReplyLength(reply) == 2) {
		name = RedisModule_CallReplyStringPtr(RedisModule_CallReplyArrayElement(reply, 1), &size);
		policy = policy_of(name, size);
	}
	if (reply)
		RedisModule_FreeCallReply(reply);
	return policy;
}

static int has_command(RedisModuleCtx *ctx, const char *name)
{
	RedisModuleCallReply *reply = RedisModule_Call(ctx, "COMMAND", "cc", "INFO", name), *about;
	int has;

	about = reply ? RedisModule_CallReplyArrayElement(reply, 0) : NULL;
	has = about && RedisModule_CallReplyType(about) == REDISMODULE_REPLY_ARRAY;
	if (reply)
		RedisModule_FreeCallReply(reply);
	return has;
}

/**
 * policy_refusal() - why values cannot go away on this server
 * @ctx: of the module's load
 *
 * Return: NULL: they can.
 */
const char *policy_refusal(RedisModuleCtx *ctx)
{
	size_t count = sizeof(commands) / sizeof(commands[0]) - (RedisModule_GetServerVersion() < VERSION_7);

	for (size_t i = 0; i < count; i++)
		if (!has_command(ctx, commands[i]))
			return "rename-command must leave MULTI, SORT, SORT_RO, SCAN, CLIENT and CONFIG as they are";
	if (policy_look(ctx) == POLICY_NONE)
		return "maxmemory-policy must be allkeys-lru, allkeys-random, volatile-lru, volatile-random or volatile-ttl: "
		       "a value is gone when its lender is, and LFU does not keep how long it was idle";
	return NULL;
}
