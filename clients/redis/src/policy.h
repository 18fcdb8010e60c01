/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys the server itself may evict: only their values go away. */
#ifndef TIDEPOOL_REDIS_POLICY_H
#define TIDEPOOL_REDIS_POLICY_H

#include "api.h"

enum policy { POLICY_NONE, POLICY_VOLATILE, POLICY_ALL };

enum policy policy_look(RedisModuleCtx *ctx);
const char *policy_refusal(RedisModuleCtx *ctx);

#endif /* TIDEPOOL_REDIS_POLICY_H */
