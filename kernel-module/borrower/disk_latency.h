/* SPDX-License-Identifier: GPL-2.0-only */
/* How long this guest's own disk takes: disk_latency.c. */
#ifndef TIDE_DISK_LATENCY_H
#define TIDE_DISK_LATENCY_H

#include <linux/types.h>

#include "base/histogram.h"

struct folio;
struct workqueue_struct;

/*
 * Reads of a few pages and those of long read-ahead windows are told apart: a
 * network may beat a disk that has to seek for the ones, and lose to the same
 * disk, which is good at the others.
 */
enum tide_size {
	TIDE_SMALL,
	TIDE_LARGE,
	TIDE_SIZES,
};

#define TIDE_SMALL_PAGES	16

static inline enum tide_size tide_size(unsigned long pages)
{
	return pages > TIDE_SMALL_PAGES ? TIDE_LARGE : TIDE_SMALL;
}

extern struct workqueue_struct *tide_disk_queue;	/* reads from disk */
extern struct tide_histogram tide_disk_latency;

int tide_disk_init(void);
void tide_disk_exit(void);
bool tide_disk_start(struct folio *folio, enum tide_size size);
void tide_disk_submitted(void);
bool tide_disk_wanted(enum tide_size size);
void tide_disk_took(enum tide_size size, u64 ns);
bool tide_disk_due(enum tide_size size);
u64 tide_disk_mean(enum tide_size size);

#endif /* TIDE_DISK_LATENCY_H */
