/* SPDX-License-Identifier: Apache-2.0 */
/* What a key keeps when another value takes the place of what it has. */
#ifndef TIDEPOOL_REDIS_LIFE_H
#define TIDEPOOL_REDIS_LIFE_H

#include "api.h"

/**
 * struct life - of a key
 * @expire: when it ends, or REDISMODULE_NO_EXPIRE
 * @idle: for how long nobody has asked for it, in milliseconds; less than 0: that is not known
 */
struct life {
	long long expire;
	long long idle;
};

static inline struct life life_of(RedisModuleKey *key)
{
	struct life life = { .expire = RedisModule_GetAbsExpire(key), .idle = -1 };

	RedisModule_GetLRU(key, &life.idle);
	return life;
}

static inline void life_go_on(RedisModuleKey *key, struct life life)
{
	if (life.expire != REDISMODULE_NO_EXPIRE)
		RedisModule_SetAbsExpire(key, life.expire);
	if (life.idle >= 0)
		RedisModule_SetLRU(key, life.idle);
}

#endif /* TIDEPOOL_REDIS_LIFE_H */
