// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ghost mode (REMOCA, section V): the hooks of the borrower's side run without
 * any lender and without keeping a page, and say what pools of several sizes
 * would be worth to this guest. What counts as a put, a get or a change is what
 * would for a lender; base/missratio.c does the arithmetic.
 *
 * Of the pages only some are followed, and which these are is found out before
 * any lock is taken. Everything is allocated when the mode is switched on.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/build_bug.h>
#include <linux/math64.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>
#include <linux/vmalloc.h>

#include "base/compat.h"
#include "base/missratio.h"
#include "pagecache/filesystem.h"
#include "pagecache/ghost.h"
#include "pagecache/inflight.h"
#include "pagecache/tracepoints.h"

#define TIDE_GHOST_FEW	4096	/* pages looked for one by one */
#define TIDE_GHOST_LAST	((pgoff_t)(LLONG_MAX >> PAGE_SHIFT))	/* no file goes on */

static_assert(sizeof(struct tide_curve) <= SZ_4M);

DEFINE_STATIC_KEY_FALSE(tide_ghost_on);

static DEFINE_SPINLOCK(tide_ghost_lock);	/* a leaf, with interrupts off */
static struct tide_curve *tide_ghost;		/* NULL: the mode is off */
u32 tide_ghost_threshold __read_mostly;

/* ------------------------------------------------------------------ */
/* names							       */
/* ------------------------------------------------------------------ */

static u64 tide_ghost_file(struct inode *inode)
{
	u64 part = tide_curve_hash((unsigned long)inode->i_sb, tide_volume(inode));

	return tide_curve_hash(part ^ (u64)inode->i_generation << 32, inode->i_ino);
}

/* The first page from one on that is followed, or the end. */
static pgoff_t tide_ghost_next(const struct inode *inode, pgoff_t index, pgoff_t end)
{
	return tide_curve_next(READ_ONCE(tide_ghost_threshold), inode->i_ino, index, end);
}

/* ------------------------------------------------------------------ */
/* what the hooks see						       */
/* ------------------------------------------------------------------ */

/* A page that is followed has been evicted. */
static void tide_ghost_put(struct address_space *mapping, pgoff_t index, bool reusable)
{
	u64 super = (unsigned long)mapping->host->i_sb;
	u64 file = tide_ghost_file(mapping->host);

	spin_lock(&tide_ghost_lock);
	if (tide_ghost && reusable)
		tide_curve_put(tide_ghost, super, file, index);
	else if (tide_ghost)
		tide_curve_drop(tide_ghost, file, index);
	spin_unlock(&tide_ghost_lock);
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
	pgoff_t index = tide_ghost_next(mapping->host, folio->index, end);

	if (index == end || !tide_eligible(mapping))
		return;
	for (; index < end; index = tide_ghost_next(mapping->host, index + 1, end))
		tide_ghost_put(mapping, index, folio_test_uptodate(folio) &&
			       !folio_test_dirty(folio) &&
			       !tide_gate_closed(mapping, index, index));
}

typedef void tide_ghost_tell(struct tide_curve *curve, u64 file, u64 index);

static void tide_ghost_told(struct inode *inode, pgoff_t index, tide_ghost_tell *tell)
{
	u64 file = tide_ghost_file(inode);
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tell(tide_ghost, file, index);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
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
	pgoff_t index = tide_ghost_next(mapping->host, folio->index, end);

	if (index == end || !tide_eligible(mapping) ||
	    tide_inode_locked_by_me(mapping->host))
		return;
	for (; index < end; index = tide_ghost_next(mapping->host, index + 1, end))
		tide_ghost_told(mapping->host, index, tide_curve_get);
}

static void tide_ghost_drop_range(u64 file, pgoff_t first, pgoff_t last)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_drop_range(tide_ghost, file, first, last);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
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
	last = min(last, TIDE_GHOST_LAST);
	if (first > last)
		return;
	if (last - first >= TIDE_GHOST_FEW) {
		tide_ghost_drop_range(tide_ghost_file(inode), first, last);
		return;
	}
	for (; (first = tide_ghost_next(inode, first, last + 1)) <= last; first++)
		tide_ghost_told(inode, first, tide_curve_drop);
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
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_drop_super(tide_ghost, (unsigned long)sb);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}

/* ------------------------------------------------------------------ */
/* control							       */
/* ------------------------------------------------------------------ */

static void tide_ghost_set(struct tide_curve *curve)
{
	struct tide_curve *old;

	spin_lock_irq(&tide_ghost_lock);
	old = tide_ghost;
	tide_ghost = curve;
	WRITE_ONCE(tide_ghost_threshold, curve ? curve->threshold : 0);
	spin_unlock_irq(&tide_ghost_lock);
	vfree(old);
}

/**
 * tide_ghost_mode() - what is being simulated?
 */
enum tide_ghost_mode tide_ghost_mode(void)
{
	enum tide_ghost_mode mode = TIDE_GHOST_OFF;

	spin_lock_irq(&tide_ghost_lock);
	if (tide_ghost)
		mode = tide_ghost->exclusive ? TIDE_GHOST_EXCLUSIVE :
					       TIDE_GHOST_NON_INCLUSIVE;
	spin_unlock_irq(&tide_ghost_lock);
	return mode;
}

/**
 * tide_ghost_switch() - switch the mode, or leave it as it is
 * @mode: the new one
 *
 * Context: process, callers take turns.
 * Return: 0, -ENOMEM, or what tide_hooks_hold() returns.
 */
int tide_ghost_switch(enum tide_ghost_mode mode)
{
	bool was_on = tide_ghost_mode() != TIDE_GHOST_OFF;
	struct tide_curve *curve;
	int err;

	if (mode == tide_ghost_mode())
		return 0;
	if (mode == TIDE_GHOST_OFF) {
		static_branch_disable(&tide_ghost_on);
		tide_ghost_set(NULL);
		tide_hooks_release();
		return 0;
	}
	curve = vmalloc(sizeof(*curve));
	if (!curve)
		return -ENOMEM;
	err = was_on ? 0 : tide_hooks_hold();
	if (err) {
		vfree(curve);
		return err;
	}
	tide_curve_init(curve, totalram_pages(), mode == TIDE_GHOST_EXCLUSIVE);
	tide_ghost_set(curve);
	static_branch_enable(&tide_ghost_on);
	return 0;
}

static int tide_ghost_show_curve(const struct tide_curve *curve, char *page)
{
	unsigned int i;
	int len = 0;

	for (i = 0; i < TIDE_CURVE_SIZES; i++) {
		u32 ratio = tide_curve_ratio(curve, i);

		len += sysfs_emit_at(page, len, "hit_ratio %llu %u.%04u\n",
				     tide_curve_pages(curve, i) << PAGE_SHIFT,
				     ratio / 10000, ratio % 10000);
	}
	len += sysfs_emit_at(page, len, "references %llu\nsamples %u\n",
			     mul_u64_u64_div_u64(curve->references_ever,
						 BIT_ULL(32) * TIDE_CURVE_BLOCK,
						 curve->threshold),
			     curve->count);
	len += sysfs_emit_at(page, len, "sampled_references %llu\n", curve->references_ever);
	return len;
}

/**
 * tide_ghost_show() - write the curve
 * @page: where to, one page
 *
 * Return: number of bytes written, 0 while the mode is off.
 */
int tide_ghost_show(char *page)
{
	int len = 0;

	spin_lock_irq(&tide_ghost_lock);
	if (tide_ghost)
		len = tide_ghost_show_curve(tide_ghost, page);
	spin_unlock_irq(&tide_ghost_lock);
	return len;
}
