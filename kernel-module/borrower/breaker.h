/* SPDX-License-Identifier: GPL-2.0-only */
/* A slow lender is left alone for a while: breaker.c. */
#ifndef TIDE_BREAKER_H
#define TIDE_BREAKER_H

#include <linux/types.h>

#include "borrower/breaker_state.h"
#include "borrower/disk_latency.h"

struct tide_lender;

struct tide_breaker_means {
	u64 short_ns, long_ns;
	unsigned int pings;
	struct {
		u64 get_ns, disk_ns;
		unsigned int gets;
	} reads[TIDE_SIZES];
};

void tide_breaker_set(struct tide_lender *lender, enum tide_breaker_mode breaker,
		      const struct tide_thresholds *peak,
		      const struct tide_thresholds *mean);
void tide_breaker_reset(struct tide_lender *lender, bool losses);
void tide_breaker_pinged(struct tide_lender *lender, u64 sent_ns);
void tide_breaker_ponged(struct tide_lender *lender, u64 sent_ns, u64 rtt_ns);
void tide_breaker_got(struct tide_lender *lender, enum tide_size size, u64 ns);
void tide_breaker_lost(struct tide_lender *lender);
void tide_breaker_means(struct tide_lender *lender, struct tide_breaker_means *means);
void tide_breaker_update(struct tide_lender *lender);
bool tide_breaker_admits(struct tide_lender *lender, enum tide_size size);
struct tide_lender *tide_lender_to_ask(int slot, enum tide_size size, unsigned int pages);
struct tide_lender *tide_lender_to_ask_alone(int slot, unsigned int pages);

#endif /* TIDE_BREAKER_H */
