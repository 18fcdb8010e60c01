/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys the server itself may evict: only their values may be away. */
#ifndef TIDEPOOL_REDIS_POLICY_H
#define TIDEPOOL_REDIS_POLICY_H

#include "api.h"

enum evicted { EVICTED_NONE, EVICTED_VOLATILE, EVICTED_ALL };

/**
 * struct policy - maxmemory-policy, as it is now
 * @evicted: keys that the server may evict
 * @goes: their values go away, as the server knows for how long nobody has asked for them
 */
struct policy {
	enum evicted evicted;
	int goes;
};

void policy_look(RedisModuleCtx *ctx, struct policy *policy);
int policy_lets_be_away(const struct policy *policy, RedisModuleKey *key);
const char *policy_refusal(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_POLICY_H */
