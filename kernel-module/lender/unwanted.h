/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages that a borrower has no use for any more: unwanted.c. */
#ifndef TIDE_UNWANTED_H
#define TIDE_UNWANTED_H

#include <linux/types.h>

struct tide_borrower;
struct tide_forget_item;
struct work_struct;

int tide_unwanted_begin(struct tide_borrower *borrower);
void tide_unwanted_end(struct tide_borrower *borrower);
void tide_unwanted_add(struct tide_borrower *borrower, const struct tide_forget_item *item,
		       unsigned int count);
unsigned int tide_unwanted_join(const struct tide_forget_item *item, unsigned int count,
				struct tide_forget_item *all);
void tide_unwanted_drop(struct work_struct *work);

#endif /* TIDE_UNWANTED_H */
