/* SPDX-License-Identifier: Apache-2.0 */
/* Values come back. */
#ifndef TIDEPOOL_REDIS_BACK_H
#define TIDEPOOL_REDIS_BACK_H

#include "api.h"

int back_bring(RedisModuleCtx *ctx, RedisModuleString *name);
int back_bring_anywhere(RedisModuleCtx *ctx, RedisModuleString *name);
void back_bring_all(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_BACK_H */
