/* SPDX-License-Identifier: GPL-2.0-only */
/* What a pool would be worth: the same hooks, no pages: ghost.c. */
#ifndef TIDE_GHOST_H
#define TIDE_GHOST_H

#include <linux/fs.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/types.h>

#include "base/missratio.h"

enum tide_ghost_mode {
	TIDE_GHOST_OFF,
	TIDE_GHOST_NON_INCLUSIVE,
	TIDE_GHOST_EXCLUSIVE,
};

DECLARE_STATIC_KEY_FALSE(tide_ghost_on);

int tide_ghost_switch(enum tide_ghost_mode mode);
enum tide_ghost_mode tide_ghost_mode(void);
int tide_ghost_show(char *page);
void tide_ghost_evicted(struct address_space *mapping, struct folio *folio);
void tide_ghost_added(struct address_space *mapping, struct folio *folio);
void tide_ghost_dirtied(struct address_space *mapping, struct folio *folio);
void tide_ghost_drop(struct inode *inode, pgoff_t first, pgoff_t last);
void tide_ghost_unmounted(struct super_block *sb);

/* The hooks ask this first: a jump that is not taken while the mode is off. */
#define tide_ghost_is_on()	static_branch_unlikely(&tide_ghost_on)

extern u32 tide_ghost_threshold;

/*
 * May a page of this folio be one that ghost mode follows? No, mostly. A folio
 * begins at a multiple of its size, so most are seen to be of one block without a
 * look at how large they are.
 */
static __always_inline bool tide_ghost_follows(const struct address_space *mapping,
					       struct folio *folio)
{
	u64 ino = mapping->host->i_ino;
	pgoff_t index = folio->index;

	/* A plain load, part of the comparison: as it was or as it is will do. */
	if (unlikely(tide_curve_chosen(data_race(tide_ghost_threshold), ino, index)))
		return folio_test_large(folio) ||
		       tide_curve_page_of_block(ino, index) == index;
	return unlikely(!(index % (2 * TIDE_CURVE_BLOCK))) &&
	       folio_nr_pages(folio) > TIDE_CURVE_BLOCK;
}

#endif /* TIDE_GHOST_H */
