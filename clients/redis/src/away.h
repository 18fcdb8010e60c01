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
 */
struct away_wish {
	unsigned int above;
	long long idle_ms;
	int back;
};

int away_begin(RedisModuleCtx *ctx, const struct away_wish *wish);
int away_may_go(void);
void away_pause(void);

#endif /* TIDEPOOL_REDIS_AWAY_H */
