/* SPDX-License-Identifier: GPL-2.0-only */
/* What a lender says: receive.c. */
#ifndef TIDE_RECEIVE_H
#define TIDE_RECEIVE_H

#include <linux/types.h>

struct tide_lane;
struct tide_lender;

int tide_receive(struct tide_lane *lane);
int tide_receive_first_grant(struct tide_lender *lender);
int tide_receive_next(struct tide_lane *lane);
bool tide_receive_bad(struct tide_lender *lender, int err);

#endif /* TIDE_RECEIVE_H */
