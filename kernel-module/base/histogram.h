/* SPDX-License-Identifier: GPL-2.0-only */
/* How long something took, each time: histogram.c. */
#ifndef TIDE_HISTOGRAM_H
#define TIDE_HISTOGRAM_H

#include <linux/atomic.h>
#include <linux/types.h>

/* 4 buckets an octave: bucket b ends at tide_histogram_limit(b) microseconds */
#define TIDE_HISTOGRAM_BUCKETS	104

struct tide_histogram {
	atomic64_t bucket[TIDE_HISTOGRAM_BUCKETS];
};

void tide_histogram_add(struct tide_histogram *h, u64 ns);
u64 tide_histogram_limit(unsigned int b);
int tide_histogram_show(const struct tide_histogram *h, const char *name, char *page, int at);

#endif /* TIDE_HISTOGRAM_H */
