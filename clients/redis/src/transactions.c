// SPDX-License-Identifier: Apache-2.0
/*
 * A filter sees a command of a transaction when it is queued, and not when it is run. So
 * what such a command names stays in memory until no client has a transaction open.
 * A filter is not told whose command it sees: whatever anybody names meanwhile stays.
 */
#define _GNU_SOURCE
#include <string.h>

#include "clock.h"
#include "transactions.h"

#define BITS		(1u << 16)
#define LEAST_US	100000		/* between checks */
#define SHARE		100		/* a hundredth of the time is for checks */
#define FLAGS		" flags="	/* in CLIENT LIST */
#define IN_MULTI	'x'

static int may_be_open;
static unsigned char named[BITS / 8];
static long long next_check_us;

/**
 * transactions_begin() - somebody has said MULTI
 */
void transactions_begin(void)
{
	may_be_open = 1;
}

/**
 * transactions_may_be_open() - has nobody said MULTI since none was open?
 */
int transactions_may_be_open(void)
{
	return may_be_open;
}

static int has_open(const char *list, size_t size)
{
	const char *end = list + size, *at = list;

	while ((at = memmem(at, end - at, FLAGS, strlen(FLAGS))))
		for (at += strlen(FLAGS); at < end && *at != ' '; at++)
			if (*at == IN_MULTI)
				return 1;
	return 0;
}

/**
 * transactions_are_open() - look for one
 * @ctx: of a command or a timer
 */
int transactions_are_open(RedisModuleCtx *ctx)
{
	RedisModuleCallReply *reply;
	const char *list;
	size_t size = 0;

	if (!may_be_open)
		return 0;
	reply = RedisModule_Call(ctx, "CLIENT", "c", "LIST");
	list = reply ? RedisModule_CallReplyStringPtr(reply, &size) : NULL;
	may_be_open = !list || has_open(list, size);
	if (reply)
		RedisModule_FreeCallReply(reply);
	if (!may_be_open)
		memset(named, 0, sizeof(named));
	return may_be_open;
}

/**
 * transactions_find() - look for those that are older than the module
 * @ctx: of the module's load
 *
 * Nobody has seen what they name.
 */
void transactions_find(RedisModuleCtx *ctx)
{
	may_be_open = 1;
	if (transactions_are_open(ctx))
		transactions_name_all();
}

/**
 * transactions_check() - look for one, now and then
 * @ctx: of a timer
 * @now_us: clock_us()
 */
void transactions_check(RedisModuleCtx *ctx, long long now_us)
{
	long long took;

	if (!may_be_open || now_us < next_check_us)
		return;
	transactions_are_open(ctx);
	took = clock_us() - now_us;
	next_check_us = now_us + (took * SHARE > LEAST_US ? took * SHARE : LEAST_US);
}

/**
 * transactions_name() - a command names a key
 * @hash: of its name
 */
void transactions_name(uint32_t hash)
{
	named[hash % BITS / 8] |= 1u << hash % 8;
}

/**
 * transactions_name_all() - nobody knows which keys a command will read
 */
void transactions_name_all(void)
{
	memset(named, ~0, sizeof(named));
}

/**
 * transactions_need() - may a command that is queued read a key?
 * @hash: of its name
 */
int transactions_need(uint32_t hash)
{
	return may_be_open && named[hash % BITS / 8] & 1u << hash % 8;
}
