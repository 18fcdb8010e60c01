/* SPDX-License-Identifier: Apache-2.0 */
/* Values go away. */
#ifndef TIDEPOOL_REDIS_AWAY_H
#define TIDEPOOL_REDIS_AWAY_H

#include "api.h"

/**
 * struct away_wish - which values go away
 * @above: bytes that one has at least
 * @idle_ms: for how long nobody has asked for it
 * @back: none, and those that are away come back
 * @has_loop: away_after_sleep() is called
 */
struct away_wish {
	unsigned int above;
	long long idle_ms;
	int back, has_loop;
};

int away_begin(RedisModuleCtx *ctx, const struct away_wish *wish);
int away_may_go(void);
void away_pause(void);
void away_after_sleep(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_AWAY_H */
