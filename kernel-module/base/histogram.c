// SPDX-License-Identifier: GPL-2.0-only
/*
 * Histograms of durations. They have four buckets an octave, so that a median
 * read off one is within an eighth of the true one.
 */
#include <linux/bitops.h>
#include <linux/export.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/sysfs.h>

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
EXPORT_SYMBOL_GPL(tide_histogram_limit);

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
EXPORT_SYMBOL_GPL(tide_histogram_add);

/**
 * tide_histogram_show() - write the buckets that are not empty
 * @h: the histogram
 * @name: first word of each line
 * @page: where to, one page
 * @at: offset in @page
 *
 * A line reads "name upper-bound-in-microseconds count"; counts are not
 * cumulative and the last bucket's bound is "inf".
 *
 * Return: number of bytes written.
 */
int tide_histogram_show(const struct tide_histogram *h, const char *name, char *page, int at)
{
	int len = 0;
	unsigned int b;

	for (b = 0; b < TIDE_HISTOGRAM_BUCKETS; b++) {
		s64 count = atomic64_read(&h->bucket[b]);

		if (!count)
			continue;
		if (b == TIDE_HISTOGRAM_BUCKETS - 1)
			len += sysfs_emit_at(page, at + len, "%s inf %lld\n", name, count);
		else
			len += sysfs_emit_at(page, at + len, "%s %llu %lld\n",
					     name, tide_histogram_limit(b), count);
	}
	return len;
}
EXPORT_SYMBOL_GPL(tide_histogram_show);
