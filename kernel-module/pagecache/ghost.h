/* SPDX-License-Identifier: GPL-2.0-only */
/* What ghost mode is told of files: ghost.c. */
#ifndef TIDE_PAGECACHE_GHOST_H
#define TIDE_PAGECACHE_GHOST_H

#include <linux/fs.h>
#include <linux/mm.h>

#include "borrower/ghost.h"

void tide_ghost_evicted(struct address_space *mapping, struct folio *folio);
void tide_ghost_added(struct address_space *mapping, struct folio *folio);
void tide_ghost_dirtied(struct address_space *mapping, struct folio *folio);
void tide_ghost_drop(struct inode *inode, pgoff_t first, pgoff_t last);
void tide_ghost_unmounted(struct super_block *sb);

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

#endif /* TIDE_PAGECACHE_GHOST_H */
