/* SPDX-License-Identifier: GPL-2.0-only */
/* What is sent beside pages: requests, notes, pings: outbox.c. */
#ifndef TIDE_OUTBOX_H
#define TIDE_OUTBOX_H

#include <linux/types.h>

struct tide_lane;

void tide_get_pump(struct tide_lane *lane, int flags);
int tide_tx_prepare(struct tide_lane *lane);
void tide_tx_release(struct tide_lane *lane);

#endif /* TIDE_OUTBOX_H */
