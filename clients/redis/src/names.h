/* SPDX-License-Identifier: Apache-2.0 */
/* Names of keys whose values are away, to know quickly that a key is none of them. */
#ifndef TIDEPOOL_REDIS_NAMES_H
#define TIDEPOOL_REDIS_NAMES_H

#include <stdint.h>

#include "api.h"

#define NAMES_UNKNOWN	0u	/* the hash of no name */

int names_begin(void);
uint32_t names_hash(const RedisModuleString *name);
void names_add(uint32_t hash);
void names_remove(uint32_t hash);
int names_may_have(uint32_t hash);

#endif /* TIDEPOOL_REDIS_NAMES_H */
