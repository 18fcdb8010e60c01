// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histograms of durations. They have four buckets an octave, so that a median
 * read off one is within an eighth of the true one.
 */
#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/minmax.h>

#include "base/histogram.h"

static unsigned int tide_histogram_bucket(u64 us)
{
	unsigned int msb;

	if (us < 4)
		return us;
	msb = fls64(us) - 1;
	return min(4 * (msb - 1) + (unsigned int)((us >> (msb - 2)) & 3),
		   TIDE_HISTOGRAM_BUCKETS - 1U);
}

/**
 * tide_histogram_limit() - what ends a bucket
 * @b: the bucket
 *
 * Return: the largest number of microseconds that falls into it.
 */
u64 tide_histogram_limit(unsigned int b)
{
	unsigned int msb = b / 4 + 1;

	if (b < 4)
		return b;
	return ((4ULL + b % 4 + 1) << (msb - 2)) - 1;
}

/**
 * tide_histogram_add() - count one duration
 * @h: the histogram
 * @ns: duration in nanoseconds
 *
 * Context: any.
 */
void tide_histogram_add(struct tide_histogram *h, u64 ns)
{
	atomic64_inc(&h->bucket[tide_histogram_bucket(div_u64(ns, 1000))]);
}
