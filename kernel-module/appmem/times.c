// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long gets and puts have taken, as programs see it: from the call to its result, with
 * all waiting for lenders, buffers and disks.
 */
#include <linux/seq_file.h>
#include <linux/timekeeping.h>

#include "appmem/times.h"

/**
 * tide_times_begin() - a call begins
 *
 * Return: when, for tide_times_took().
 */
u64 tide_times_begin(void)
{
	return ktime_get_ns();
}

/**
 * tide_times_took() - a call has a result
 * @h: of its kind
 * @began: when it began
 */
void tide_times_took(struct tide_histogram *h, u64 began)
{
	tide_histogram_add(h, ktime_get_ns() - began);
}

static void tide_times_add_one(struct tide_histogram *sum, const struct tide_histogram *h)
{
	unsigned int b;

	for (b = 0; b < TIDE_HISTOGRAM_BUCKETS; b++)
		atomic64_add(atomic64_read(&h->bucket[b]), &sum->bucket[b]);
}

/**
 * tide_times_add() - what several pools have counted together
 * @sum: becomes more by
 * @times: this
 */
void tide_times_add(struct tide_times *sum, const struct tide_times *times)
{
	tide_times_add_one(&sum->get, &times->get);
	tide_times_add_one(&sum->put, &times->put);
}

/**
 * tide_times_list() - times as one word: LE:COUNT,LE:COUNT, or - without any
 * @seq: where to
 * @h: the times; LE is the largest number of microseconds of a bucket, or inf
 */
void tide_times_list(struct seq_file *seq, const struct tide_histogram *h)
{
	const char *before = "";
	unsigned int b;

	for (b = 0; b < TIDE_HISTOGRAM_BUCKETS; b++) {
		s64 count = atomic64_read(&h->bucket[b]);

		if (!count)
			continue;
		if (b == TIDE_HISTOGRAM_BUCKETS - 1)
			seq_printf(seq, "%sinf:%lld", before, count);
		else
			seq_printf(seq, "%s%llu:%lld", before, tide_histogram_limit(b), count);
		before = ",";
	}
	if (!*before)
		seq_putc(seq, '-');
}
