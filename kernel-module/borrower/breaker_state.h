/* SPDX-License-Identifier: GPL-2.0-only */
/* What a lender's breaker goes by, and what it has decided. */
#ifndef TIDE_BREAKER_STATE_H
#define TIDE_BREAKER_STATE_H

#include <linux/compiler.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "base/recent.h"
#include "borrower/disk_latency.h"

enum tide_breaker_mode {
	TIDE_BREAKER_OFF,
	TIDE_BREAKER_THRESHOLDS,	/* by the two pairs of thresholds */
	TIDE_BREAKER_AUTOMATIC,		/* by comparison with the own disk */
};

struct tide_thresholds {
	u32 resume_us, stop_us;
};

#define TIDE_LOSSES		3	/* lost connections in a minute are too many */

/**
 * struct tide_breaker - what breaker.c measures and decides for one lender
 * @lock: guards all of these
 * @pings: the latest
 * @long_ns: their moving average
 * @long_count: how many it is made of
 * @unanswered: when the oldest ping that is not answered was sent
 * @open: the lender is left alone: no reads, and no puts
 * @unheard: large reads have stopped with the small ones, and there were none since
 * @flaps: the connection has been lost again and again
 * @lost: when it was the last times, in seconds; @losses is how often in all
 * @reads: of each size; @open ones are stopped: @gets is how long the latest
 *	took, @got_ns the last, @next_probe when one is sent all the same,
 *	@busy_disk_ns what the disk took while they were stopped, and @resumed when
 *	that ended
 */
struct tide_breaker {
	spinlock_t lock;	/* a leaf */
	struct tide_recent pings;
	u64 long_ns;
	unsigned int long_count;
	u64 unanswered;
	bool open, unheard, flaps;
	u32 lost[TIDE_LOSSES];
	unsigned int losses;
	struct tide_breaker_reads {
		bool open;
		struct tide_recent gets;
		u64 got_ns;
		unsigned long next_probe;
		u64 busy_disk_ns;
		unsigned long resumed;
	} reads[TIDE_SIZES];
};

/* Is this lender left alone? */
static inline bool tide_breaker_open(const struct tide_breaker *breaker)
{
	return READ_ONCE(breaker->open);
}

/* Are reads of one size, at least, stopped? */
static inline bool tide_breaker_stops(const struct tide_breaker *breaker,
				      enum tide_size size)
{
	return READ_ONCE(breaker->reads[size].open);
}

#endif /* TIDE_BREAKER_STATE_H */
