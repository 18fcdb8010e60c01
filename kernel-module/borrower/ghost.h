/* SPDX-License-Identifier: GPL-2.0-only */
/* What a pool would be worth: the curve, and what may be told to it: ghost.c. */
#ifndef TIDE_BORROWER_GHOST_H
#define TIDE_BORROWER_GHOST_H

#include <linux/jump_label.h>
#include <linux/types.h>

#include "base/missratio.h"

enum tide_ghost_mode {
	TIDE_GHOST_OFF,
	TIDE_GHOST_NON_INCLUSIVE,
	TIDE_GHOST_EXCLUSIVE,
};

/**
 * struct tide_ghost_name - what a page is known by, beside its index
 * @owner: its file system or device; all of one is forgotten together
 * @file: its file, or its device again
 * @number: says with the index whether the page is followed
 */
struct tide_ghost_name {
	u64 owner, file, number;
};

DECLARE_STATIC_KEY_FALSE(tide_ghost_on);

/* Who has something to tell asks this first: a jump that is not taken while the mode is off. */
#define tide_ghost_is_on()	static_branch_unlikely(&tide_ghost_on)

extern u32 tide_ghost_threshold;

/* The first page from one on that is followed, or the end. */
static inline u64 tide_ghost_next(u64 number, u64 index, u64 end)
{
	return tide_curve_next(READ_ONCE(tide_ghost_threshold), number, index, end);
}

/* Is this one? */
static inline bool tide_ghost_follows_page(const struct tide_ghost_name *name, u64 index)
{
	return tide_curve_follows(READ_ONCE(tide_ghost_threshold), name->number, index);
}

int tide_ghost_begin(enum tide_ghost_mode mode);
void tide_ghost_end(void);
enum tide_ghost_mode tide_ghost_mode(void);
int tide_ghost_show(char *page);

void tide_ghost_left(const struct tide_ghost_name *name, u64 index);
void tide_ghost_copied(const struct tide_ghost_name *name, u64 index);
void tide_ghost_read(const struct tide_ghost_name *name, u64 index);
void tide_ghost_changed(const struct tide_ghost_name *name, u64 first, u64 last);
void tide_ghost_gone(u64 owner);

#endif /* TIDE_BORROWER_GHOST_H */
