// SPDX-License-Identifier: GPL-2.0-only
/*
 * What ghost mode is told of files, by the hooks of the borrower's side. What counts
 * as a put, a get or a change is what would for a lender.
 */
#include "base/compat.h"
#include "pagecache/filesystem.h"
#include "pagecache/ghost.h"
#include "pagecache/inflight.h"

#define TIDE_GHOST_LAST	((pgoff_t)(LLONG_MAX >> PAGE_SHIFT))	/* no file goes on */

static struct tide_ghost_name tide_ghost_file(struct inode *inode)
{
	u64 owner = (unsigned long)inode->i_sb;
	u64 part = tide_curve_hash(owner, tide_volume(inode));

	return (struct tide_ghost_name) {
		.owner = owner,
		.file = tide_curve_hash(part ^ (u64)inode->i_generation << 32, inode->i_ino),
		.number = inode->i_ino,
	};
}

/**
 * tide_ghost_evicted() - a folio is being reclaimed
 * @mapping: of any file
 * @folio: frozen, its mapping still set
 *
 * Context: the mapping's i_pages lock is held, interrupts are off.
 */
void tide_ghost_evicted(struct address_space *mapping, struct folio *folio)
{
	pgoff_t end = folio->index + folio_nr_pages(folio);
	u64 ino = mapping->host->i_ino;
	pgoff_t index = tide_ghost_next(ino, folio->index, end);
	struct tide_ghost_name file;

	if (index == end || !tide_eligible(mapping))
		return;
	file = tide_ghost_file(mapping->host);
	for (; index < end; index = tide_ghost_next(ino, index + 1, end)) {
		if (folio_test_uptodate(folio) && !folio_test_dirty(folio) &&
		    !tide_gate_closed(mapping, index, index))
			tide_ghost_left(&file, index);
		else
			tide_ghost_changed(&file, index, index);
	}
}

/**
 * tide_ghost_added() - a folio comes into the page cache
 * @mapping: of any file
 * @folio: of that mapping
 *
 * A task that writes to the file holds its lock, and does not ask the pool.
 *
 * Context: any.
 */
void tide_ghost_added(struct address_space *mapping, struct folio *folio)
{
	pgoff_t end = folio->index + folio_nr_pages(folio);
	u64 ino = mapping->host->i_ino;
	pgoff_t index = tide_ghost_next(ino, folio->index, end);
	struct tide_ghost_name file;

	if (index == end || !tide_eligible(mapping) ||
	    tide_inode_locked_by_me(mapping->host))
		return;
	file = tide_ghost_file(mapping->host);
	for (; index < end; index = tide_ghost_next(ino, index + 1, end))
		tide_ghost_read(&file, index);
}

/**
 * tide_ghost_drop() - pages of a file have changed
 * @inode: of an eligible file
 * @first: first page index
 * @last: last page index, inclusive
 *
 * Context: any.
 */
void tide_ghost_drop(struct inode *inode, pgoff_t first, pgoff_t last)
{
	struct tide_ghost_name file = tide_ghost_file(inode);

	tide_ghost_changed(&file, first, min(last, TIDE_GHOST_LAST));
}

/**
 * tide_ghost_dirtied() - a folio no longer has what the disk has
 * @mapping: of any file
 * @folio: of that mapping
 *
 * Context: any.
 */
void tide_ghost_dirtied(struct address_space *mapping, struct folio *folio)
{
	if (tide_eligible(mapping))
		tide_ghost_drop(mapping->host, folio->index,
				folio->index + folio_nr_pages(folio) - 1);
}

/**
 * tide_ghost_unmounted() - no page survives its mount
 * @sb: being unmounted
 *
 * Context: process.
 */
void tide_ghost_unmounted(struct super_block *sb)
{
	tide_ghost_gone((unsigned long)sb);
}
