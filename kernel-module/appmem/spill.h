/* SPDX-License-Identifier: GPL-2.0-only */
/* The file in which a kept pool has what lenders may lose: spill.c. */
#ifndef TIDE_APP_SPILL_H
#define TIDE_APP_SPILL_H

#include <linux/types.h>

struct page;
struct tide_spill;

/**
 * struct tide_spilled - pages in a spill file
 * @at: where, of tide_spill_take(), or 0
 * @sum: of their bytes
 */
struct tide_spilled {
	u64 at;
	u64 sum;
};

int tide_spill_await(int descriptor);
struct tide_spill *tide_spill_open(int descriptor);
void tide_spill_close(struct tide_spill *spill);
size_t tide_spill_bytes(const struct tide_spill *spill);
u64 tide_spill_reads(struct tide_spill *spill);
int tide_spill_keep(struct tide_spill *spill, struct tide_spilled *spilled, struct page **pages,
		    unsigned int count);
u64 tide_spill_take(struct tide_spill *spill, unsigned int count, bool moves);
void tide_spill_give_back(struct tide_spill *spill, u64 at, unsigned int count);
int tide_spill_write(struct tide_spill *spill, struct tide_spilled *spilled, struct page **pages,
		     unsigned int count);
int tide_spill_read(struct tide_spill *spill, const struct tide_spilled *spilled,
		    struct page **pages, unsigned int count, bool cached);

#endif /* TIDE_APP_SPILL_H */
