/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that commands of open transactions name: their values must not go away. */
#ifndef TIDEPOOL_REDIS_TRANSACTIONS_H
#define TIDEPOOL_REDIS_TRANSACTIONS_H

#include <stdint.h>

#include "api.h"

void transactions_begin(void);
int transactions_may_be_open(void);
int transactions_are_open(RedisModuleCtx *ctx);
void transactions_find(RedisModuleCtx *ctx);
void transactions_check(RedisModuleCtx *ctx, long long now_us);
void transactions_name(uint32_t hash);
void transactions_name_all(void);
int transactions_need(uint32_t hash);

#endif /* TIDEPOOL_REDIS_TRANSACTIONS_H */
