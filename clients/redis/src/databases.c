// SPDX-License-Identifier: Apache-2.0
/*
 * A command filter is not told which database a client has selected, so a name is looked
 * up in each that may have stubs. Which these are is learnt anew whenever all keys have
 * been seen.
 */
#include <stdlib.h>

#include "databases.h"

static int count;
static unsigned char *may_have;		/* stubs, by database */
static unsigned char *noted;		/* since all keys were seen last */

/* Databases may be swapped at any time, also by a replica's sync. */
static void swapped(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data)
{
	(void)ctx, (void)event, (void)what, (void)data;
	databases_note_all();
}

/**
 * databases_begin() - find out how many there are
 * @ctx: of the module's load
 *
 * Return: 0, or -1: there is no memory.
 */
int databases_begin(RedisModuleCtx *ctx)
{
	RedisModuleEvent swap = { .id = REDISMODULE_EVENT_SWAPDB, .dataver = 1 };
	int before = RedisModule_GetSelectedDb(ctx);

	for (count = 0; RedisModule_SelectDb(ctx, count) == REDISMODULE_OK; count++)
		;
	RedisModule_SelectDb(ctx, before);
	may_have = calloc(count, 1);
	noted = calloc(count, 1);
	if (!may_have || !noted)
		return -1;
	return RedisModule_SubscribeToServerEvent(ctx, swap, swapped) ? -1 : 0;
}

/**
 * databases_count() - how many the server has
 */
int databases_count(void)
{
	return count;
}

/**
 * databases_note() - there is a stub in one
 * @database: its number
 */
void databases_note(int database)
{
	may_have[database] = 1;
	noted[database] = 1;
}

/**
 * databases_note_all() - there may be one in each
 */
void databases_note_all(void)
{
	for (int i = 0; i < count; i++)
		databases_note(i);
}

/**
 * databases_seen() - each key has been seen, and stubs among them noted
 */
void databases_seen(void)
{
	for (int i = 0; i < count; i++) {
		may_have[i] = noted[i];
		noted[i] = 0;
	}
}

/**
 * databases_next() - select the next one that may have stubs
 * @ctx: where
 * @database: that was selected before, or FIRST_DATABASE
 *
 * Return: its number; -1: there are no more.
 */
int databases_next(RedisModuleCtx *ctx, int database)
{
	do
		database++;
	while (database < count && !may_have[database]);
	return database < count && RedisModule_SelectDb(ctx, database) == REDISMODULE_OK ? database : -1;
}
