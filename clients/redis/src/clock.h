/* SPDX-License-Identifier: Apache-2.0 */
/* How time goes by. */
#ifndef TIDEPOOL_REDIS_CLOCK_H
#define TIDEPOOL_REDIS_CLOCK_H

#include <time.h>

/* Microseconds since some time. */
static inline long long clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

#endif /* TIDEPOOL_REDIS_CLOCK_H */
