/* SPDX-License-Identifier: GPL-2.0-only */
/* Which lenders do not get what is read sequentially: filter.c. */
#ifndef TIDE_FILTER_H
#define TIDE_FILTER_H

#include <linux/types.h>

struct tide_lender;

extern atomic_t tide_filters;	/* lenders that it is on for */

void tide_filter_set(struct tide_lender *lender, bool on);
void tide_filter_refresh(struct tide_lender *lender);

#endif /* TIDE_FILTER_H */
