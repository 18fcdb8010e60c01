// SPDX-License-Identifier: Apache-2.0
/* The server's functions. */
#include "api.h"

#define DEFINE(type, name, arguments) type (*RedisModule_##name) arguments;
API(DEFINE)
#undef DEFINE

/**
 * api_find() - ask the server for its functions
 * @ctx: as a module gets it; its first word is the function to ask
 *
 * Return: REDISMODULE_OK, or REDISMODULE_ERR: the server is too old.
 */
int api_find(RedisModuleCtx *ctx)
{
	int (*ask)(const char *name, void *function) = *(int (**)(const char *, void *))ctx;
	int missing = 0;

#define FIND(type, name, arguments) missing |= ask("RedisModule_" #name, &RedisModule_##name);
	API(FIND)
#undef FIND
	return missing ? REDISMODULE_ERR : REDISMODULE_OK;
}
