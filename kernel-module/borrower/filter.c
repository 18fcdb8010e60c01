// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which lenders do not get what is read sequentially: those that are configured
 * so, and those whose large reads the breaker has stopped. Who reads sequentially
 * is for each front end to find out (pagecache/sequential.c).
 */
#include <linux/atomic.h>

#include "borrower/breaker_state.h"
#include "borrower/disk_latency.h"
#include "borrower/filter.h"
#include "borrower/peer.h"

atomic_t tide_filters = ATOMIC_INIT(0);

/**
 * tide_filter_refresh() - filter what a lender gets, or no longer
 * @lender: its breaker is locked; the filter is on, or its large reads are stopped
 *
 * Pages that would not be read back from there need not go there.
 */
void tide_filter_refresh(struct tide_lender *lender)
{
	const struct tide_breaker *breaker = &lender->breaker;
	bool on = lender->config.sequential_filter ||
		  (tide_breaker_stops(breaker, TIDE_LARGE) && !tide_breaker_open(breaker));

	if (lender->filtering == on)
		return;
	atomic_add(on ? 1 : -1, &tide_filters);
	WRITE_ONCE(lender->filtering, on);
}

/**
 * tide_filter_set() - switch the filter of a lender
 * @lender: the lender
 * @on: whether it is not to get what is read sequentially
 *
 * Context: process.
 */
void tide_filter_set(struct tide_lender *lender, bool on)
{
	spin_lock(&lender->breaker.lock);
	WRITE_ONCE(lender->config.sequential_filter, on);
	tide_filter_refresh(lender);
	spin_unlock(&lender->breaker.lock);
}
