/* SPDX-License-Identifier: Apache-2.0 */
/* Before a command is run, the values that it needs come back. */
#ifndef TIDEPOOL_REDIS_FILTER_H
#define TIDEPOOL_REDIS_FILTER_H

#include "api.h"

int filter_begin(RedisModuleCtx *ctx, RedisModuleCtx *detached);

#endif /* TIDEPOOL_REDIS_FILTER_H */
