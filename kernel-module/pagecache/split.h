/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of a window go together: split.c. */
#ifndef TIDE_SPLIT_H
#define TIDE_SPLIT_H

#include "borrower/peer.h"

/* What becomes of a folio of a window. */
enum tide_part {
	TIDE_PART_DISK,		/* it is read from disk with its neighbours */
	TIDE_PART_COPY,		/* it is copied from buffers */
	TIDE_PART_JOIN,		/* it is asked for in the lender's open request, or in its first */
	TIDE_PART_NEXT,		/* in its next request: there is no room in the open one */
};

/**
 * struct tide_split - how far a window has been split
 * @open: pages of each lender's open request, by slot
 * @misses: pages since the last folio that was taken: they go to the disk together
 */
struct tide_split {
	unsigned int open[TIDE_MAX_LENDERS];
	unsigned long misses;
};

int tide_split_where(int where, int page);
enum tide_part tide_split_part(const struct tide_split *split, int where, unsigned long nr,
			       unsigned int most);
void tide_split_sent(struct tide_split *split, int slot);
void tide_split_missed(struct tide_split *split, unsigned long nr);
unsigned long tide_split_taken(struct tide_split *split, int where, unsigned int pages);

#endif /* TIDE_SPLIT_H */
