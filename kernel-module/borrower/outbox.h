/* SPDX-License-Identifier: GPL-2.0-only */
/* What is sent beside pages: requests, notes, pings: outbox.c. */
#ifndef TIDE_OUTBOX_H
#define TIDE_OUTBOX_H

#include <linux/types.h>

struct tide_lane;
struct tide_lender;

void tide_forget(int slot, u64 file, pgoff_t first, pgoff_t last);
void tide_forget_nothing(struct tide_lender *lender);
int tide_forget_prepare(struct tide_lender *lender);
void tide_forget_release(struct tide_lender *lender);
void tide_get_pump(struct tide_lane *lane, int flags);
int tide_tx_prepare(struct tide_lane *lane);
void tide_tx_release(struct tide_lane *lane);

#endif /* TIDE_OUTBOX_H */
