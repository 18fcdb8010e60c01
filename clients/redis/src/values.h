/* SPDX-License-Identifier: Apache-2.0 */
/* Ordinary values in a pool of their own, by number. */
#ifndef TIDEPOOL_REDIS_VALUES_H
#define TIDEPOOL_REDIS_VALUES_H

#include <stddef.h>
#include <stdint.h>

int values_open(uint64_t quota);
void values_close(void);
uint64_t values_number(void);
int values_put(uint64_t number, const char *value, size_t size);
const char *values_get(uint64_t number, size_t size);
void values_drop(uint64_t number);
void values_drop_now(void);

#endif /* TIDEPOOL_REDIS_VALUES_H */
