// SPDX-License-Identifier: Apache-2.0
/*
 * A value that is away may be gone when its lender is. Only who lets the server evict a
 * key has said that this may be. An LFU policy does not keep how long a key was idle:
 * nothing goes away then, and what is away may stay. With noeviction, and with a policy
 * that is not known here, nothing may be away.
 */
#include <stdlib.h>
#include <string.h>

#include "policy.h"

#define VERSION_7	0x00070000	/* it has SORT_RO */

static const struct {
	const char *name;
	struct policy policy;
} policies[] = {
	{ "allkeys-lru", { EVICTED_ALL, 1 } },
	{ "allkeys-random", { EVICTED_ALL, 1 } },
	{ "allkeys-lfu", { EVICTED_ALL, 0 } },
	{ "volatile-lru", { EVICTED_VOLATILE, 1 } },
	{ "volatile-random", { EVICTED_VOLATILE, 1 } },
	{ "volatile-ttl", { EVICTED_VOLATILE, 1 } },
	{ "volatile-lfu", { EVICTED_VOLATILE, 0 } },
};

static const struct policy nothing_goes = { EVICTED_NONE, 0 };

/* Which the filter and its errands know by their names. */
static const char *const commands[] = { "multi", "sort", "scan", "client", "config", "sort_ro" };

static struct policy policy_of(const char *name, size_t size)
{
	for (size_t i = 0; name && i < sizeof(policies) / sizeof(policies[0]); i++)
		if (size == strlen(policies[i].name) && !memcmp(name, policies[i].name, size))
			return policies[i].policy;
	return nothing_goes;
}

/**
 * policy_look() - ask the server
 * @ctx: of a command, an event, a timer or the module's load
 * @policy: set to what it says; stays as it is if it says nothing
 */
void policy_look(RedisModuleCtx *ctx, struct policy *policy)
{
	RedisModuleCallReply *reply = RedisModule_Call(ctx, "CONFIG", "cc", "GET", "maxmemory-policy");
	const char *name;
	size_t size;

	if (reply && RedisModule_CallReplyLength(reply) == 2) {
		name = RedisModule_CallReplyStringPtr(RedisModule_CallReplyArrayElement(reply, 1), &size);
		*policy = policy_of(name, size);
	}
	if (reply)
		RedisModule_FreeCallReply(reply);
}

/**
 * policy_lets_be_away() - may the value of a key be away?
 * @policy: as it is now
 * @key: open
 */
int policy_lets_be_away(const struct policy *policy, RedisModuleKey *key)
{
	if (policy->evicted == EVICTED_VOLATILE)
		return RedisModule_GetAbsExpire(key) != REDISMODULE_NO_EXPIRE;
	return policy->evicted == EVICTED_ALL;
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
	struct policy policy = nothing_goes;

	for (size_t i = 0; i < count; i++)
		if (!has_command(ctx, commands[i]))
			return "rename-command must leave MULTI, SORT, SORT_RO, SCAN, CLIENT and CONFIG as they are";
	policy_look(ctx, &policy);
	if (!policy.goes)
		return "maxmemory-policy must be allkeys-lru, allkeys-random, volatile-lru, volatile-random or volatile-ttl: "
		       "a value is gone when its lender is, and LFU does not keep how long it was idle";
	return NULL;
}
