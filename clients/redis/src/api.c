// SPDX-License-Identifier: Apache-2.0
/* The server's functions. */
#include "api.h"

#define DEFINE(type, name, arguments) type (*RedisModule_##name) arguments;
API(DEFINE)
API_TRANSPARENT(DEFINE)
#undef DEFINE

typedef int (*ask_function)(const char *name, void *function);

/* The first word of a context is the function to ask. */
static ask_function ask_of(RedisModuleCtx *ctx)
{
	return *(ask_function *)ctx;
}

#define FIND(type, name, arguments) missing |= ask("RedisModule_" #name, &RedisModule_##name);

/**
 * api_find() - ask the server for its functions
 * @ctx: as a module gets it
 *
 * Return: REDISMODULE_OK, or REDISMODULE_ERR: the server is too old.
 */
int api_find(RedisModuleCtx *ctx)
{
	ask_function ask = ask_of(ctx);
	int missing = 0;

	API(FIND)
	return missing ? REDISMODULE_ERR : REDISMODULE_OK;
}

/**
 * api_find_transparent() - ask it for those of the transparent mode
 * @ctx: as a module gets it
 *
 * Return: as api_find().
 */
int api_find_transparent(RedisModuleCtx *ctx)
{
	ask_function ask = ask_of(ctx);
	int missing = 0;

	API_TRANSPARENT(FIND)
	return missing ? REDISMODULE_ERR : REDISMODULE_OK;
}
