/* SPDX-License-Identifier: GPL-2.0-only */
/* Lent pages are the first to go when this guest is short of memory: giveback.c. */
#ifndef TIDE_GIVEBACK_H
#define TIDE_GIVEBACK_H

#include <linux/atomic.h>
#include <linux/types.h>

struct tide_shelf;

#define TIDE_GIVE_BATCH		32

extern atomic64_t tide_lent_pages;

/* What all borrowers have here. */
static inline u64 tide_shelf_lent(void)
{
	return atomic64_read(&tide_lent_pages);
}

int tide_give_init(void);
void tide_give_exit(void);
void tide_give_add(struct tide_shelf *shelf);
void tide_give_remove(struct tide_shelf *shelf);
unsigned long tide_give_cool(struct tide_shelf *shelf, const pgoff_t *slot, unsigned int count);
unsigned long tide_give_room(void);

#endif /* TIDE_GIVEBACK_H */
