/* SPDX-License-Identifier: GPL-2.0-only */
/* How long calls of programs have taken: times.c. */
#ifndef TIDE_APP_TIMES_H
#define TIDE_APP_TIMES_H

#include <linux/types.h>

#include "base/histogram.h"

struct seq_file;

/**
 * struct tide_times - of the calls of a pool, as their programs have waited for them
 * @get: gets that brought the value
 * @put: puts of values that are there then
 */
struct tide_times {
	struct tide_histogram get, put;
};

u64 tide_times_begin(void);
void tide_times_took(struct tide_histogram *h, u64 began);
void tide_times_add(struct tide_times *sum, const struct tide_times *times);
void tide_times_list(struct seq_file *seq, const struct tide_histogram *h);

#endif /* TIDE_APP_TIMES_H */
