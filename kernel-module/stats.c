// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counters and latency histograms as text. A histogram has four buckets an
 * octave, so that a median read off it is within an eighth of the true one.
 */
#include <linux/bitops.h>
#include <linux/sysfs.h>

#include "tidepool.h"

struct tide_stats tide_stats;

static unsigned int tide_histogram_bucket(u64 us)
{
	unsigned int msb;

	if (us < 4)
		return us;
	msb = fls64(us) - 1;
	return min(4 * (msb - 1) + (unsigned int)((us >> (msb - 2)) & 3),
		   TIDE_HISTOGRAM_BUCKETS - 1U);
}

/* Largest number of microseconds that falls into bucket @b. */
static u64 tide_histogram_limit(unsigned int b)
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
int tide_histogram_show(const struct tide_histogram *h, const char *name,
			char *page, int at)
{
	int len = 0;
	unsigned int b;

	for (b = 0; b < TIDE_HISTOGRAM_BUCKETS; b++) {
		s64 count = atomic64_read(&h->bucket[b]);

		if (!count)
			continue;
		if (b == TIDE_HISTOGRAM_BUCKETS - 1)
			len += sysfs_emit_at(page, at + len, "%s inf %lld\n",
					     name, count);
		else
			len += sysfs_emit_at(page, at + len, "%s %llu %lld\n",
					     name, tide_histogram_limit(b), count);
	}
	return len;
}

/**
 * tide_stats_show() - the figures of the guest as a whole
 * @page: where to, one page
 *
 * Return: number of bytes written.
 */
int tide_stats_show(char *page)
{
	unsigned int total, free;
	int len = 0;

#define X(name)								\
	len += sysfs_emit_at(page, len, #name " %lld\n",		\
			     (s64)atomic64_read(&tide_stats.name));
	TIDE_STATS(X)
#undef X
	tide_buffers_count(&total, &free);
	len += sysfs_emit_at(page, len, "hooks 1\nfiles %u\n", tide_catalog_files());
	len += sysfs_emit_at(page, len, "buffers_total %u\nbuffers_free %u\n",
			     total, free);
	len += sysfs_emit_at(page, len, "lent_pages %llu\n", tide_store_lent());
	return len;
}
