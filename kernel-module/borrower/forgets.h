/* SPDX-License-Identifier: GPL-2.0-only */
/* Notes for a lender on pages that it may drop: forgets.c. */
#ifndef TIDE_FORGETS_H
#define TIDE_FORGETS_H

#include <linux/types.h>

struct tide_lender;
struct tide_object;

#define TIDE_FORGET_RING	1024

void tide_forget(int slot, const struct tide_object *object, pgoff_t first, pgoff_t last);
void tide_forget_nothing(struct tide_lender *lender);
int tide_forget_prepare(struct tide_lender *lender);
void tide_forget_release(struct tide_lender *lender);

#endif /* TIDE_FORGETS_H */
