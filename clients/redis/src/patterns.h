/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that read keys which they do not name. */
#ifndef TIDEPOOL_REDIS_PATTERNS_H
#define TIDEPOOL_REDIS_PATTERNS_H

#include "api.h"

int patterns_are_in(RedisModuleString **argv, int argc);
void patterns_bring(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif /* TIDEPOOL_REDIS_PATTERNS_H */
