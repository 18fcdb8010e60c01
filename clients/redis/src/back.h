/* SPDX-License-Identifier: Apache-2.0 */
/* Values come back. */
#ifndef TIDEPOOL_REDIS_BACK_H
#define TIDEPOOL_REDIS_BACK_H

#include "api.h"

/**
 * struct back_name - a key whose value is to come back
 * @name: of it
 * @next: another
 */
struct back_name {
	RedisModuleString *name;
	struct back_name *next;
};

int back_bring(RedisModuleCtx *ctx, RedisModuleString *name);
int back_bring_anywhere(RedisModuleCtx *ctx, RedisModuleString *name);
void back_bring_all(RedisModuleCtx *ctx);
void back_note(RedisModuleCtx *ctx, struct back_name **first, const RedisModuleString *name);
void back_go_home(RedisModuleCtx *ctx, struct back_name *first);

#endif /* TIDEPOOL_REDIS_BACK_H */
