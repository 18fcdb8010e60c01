/* SPDX-License-Identifier: Apache-2.0 */
/* The transparent mode: ordinary values go away, and come back when they are read. */
#ifndef TIDEPOOL_REDIS_TRANSPARENT_H
#define TIDEPOOL_REDIS_TRANSPARENT_H

#include <stdint.h>

#include "api.h"
#include "away.h"

#define TRANSPARENT_FIGURES	6

int transparent_begin(RedisModuleCtx *ctx, const struct away_wish *wish, uint64_t quota);
void transparent_each_figure(void (*see)(void *context, const char *name, uint64_t value), void *context);

#endif /* TIDEPOOL_REDIS_TRANSPARENT_H */
