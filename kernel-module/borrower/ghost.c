// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ghost mode (REMOCA, section V): what pools of several sizes would be worth to this
 * guest, without any lender and without a page being kept. The front ends say what
 * would be put, asked for and changed, by name; base/missratio.c does the arithmetic.
 *
 * Of the pages only some are followed, and which these are is found out before
 * any lock is taken. Everything is allocated when the mode is switched on.
 */
#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/vmalloc.h>

#include "borrower/ghost.h"

#define TIDE_GHOST_FEW	4096	/* pages looked for one by one */

static_assert(sizeof(struct tide_curve) <= SZ_4M);

DEFINE_STATIC_KEY_FALSE(tide_ghost_on);
EXPORT_SYMBOL_GPL(tide_ghost_on);

static DEFINE_SPINLOCK(tide_ghost_lock);	/* a leaf, with interrupts off */
static struct tide_curve *tide_ghost;		/* NULL: the mode is off */
u32 tide_ghost_threshold __read_mostly;
EXPORT_SYMBOL_GPL(tide_ghost_threshold);

/* ------------------------------------------------------------------ */
/* what it is told						       */
/* ------------------------------------------------------------------ */

static void tide_ghost_put(const struct tide_ghost_name *name, u64 index, bool copy)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost && !(copy && tide_ghost->exclusive))
		tide_curve_put(tide_ghost, name->owner, name->file, index);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}

/**
 * tide_ghost_left() - a page leaves memory: a pool would take it
 * @name: of its file
 * @index: of a page that is followed
 *
 * Context: any.
 */
void tide_ghost_left(const struct tide_ghost_name *name, u64 index)
{
	tide_ghost_put(name, index, false);
}
EXPORT_SYMBOL_GPL(tide_ghost_left);

/**
 * tide_ghost_copied() - a page stays in memory, and a pool could take a copy of it
 * @name: of its file
 * @index: of a page that is followed
 *
 * A pool with Exclusive has no copies.
 *
 * Context: any.
 */
void tide_ghost_copied(const struct tide_ghost_name *name, u64 index)
{
	tide_ghost_put(name, index, true);
}
EXPORT_SYMBOL_GPL(tide_ghost_copied);

/**
 * tide_ghost_read() - a page is not in memory and is read: a pool would be asked
 * @name: of its file
 * @index: of a page that is followed
 *
 * Context: any.
 */
void tide_ghost_read(const struct tide_ghost_name *name, u64 index)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_get(tide_ghost, name->file, index);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}
EXPORT_SYMBOL_GPL(tide_ghost_read);

static void tide_ghost_drop_page(const struct tide_ghost_name *name, u64 index)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_drop(tide_ghost, name->file, index);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}

static void tide_ghost_drop_range(const struct tide_ghost_name *name, u64 first, u64 last)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_drop_range(tide_ghost, name->file, first, last);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}

/**
 * tide_ghost_changed() - what a pool has of pages is old
 * @name: of their file
 * @first: first page index
 * @last: last page index, inclusive, below U64_MAX
 *
 * Context: any.
 */
void tide_ghost_changed(const struct tide_ghost_name *name, u64 first, u64 last)
{
	if (first > last)
		return;
	if (last - first >= TIDE_GHOST_FEW) {
		tide_ghost_drop_range(name, first, last);
		return;
	}
	for (; (first = tide_ghost_next(name->number, first, last + 1)) <= last; first++)
		tide_ghost_drop_page(name, first);
}
EXPORT_SYMBOL_GPL(tide_ghost_changed);

/**
 * tide_ghost_gone() - a pool has nothing of a file system or device any more
 * @owner: as in the names of its pages
 *
 * Context: any.
 */
void tide_ghost_gone(u64 owner)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_ghost_lock, flags);
	if (tide_ghost)
		tide_curve_drop_super(tide_ghost, owner);
	spin_unlock_irqrestore(&tide_ghost_lock, flags);
}
EXPORT_SYMBOL_GPL(tide_ghost_gone);

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
 *
 * Context: process.
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
 * tide_ghost_begin() - simulate from now on, with an empty pool
 * @mode: what, not TIDE_GHOST_OFF
 *
 * Context: process, callers take turns.
 * Return: 0 or -ENOMEM.
 */
int tide_ghost_begin(enum tide_ghost_mode mode)
{
	struct tide_curve *curve = vmalloc(sizeof(*curve));

	if (!curve)
		return -ENOMEM;
	tide_curve_init(curve, totalram_pages(), mode == TIDE_GHOST_EXCLUSIVE);
	tide_ghost_set(curve);
	static_branch_enable(&tide_ghost_on);
	return 0;
}

/**
 * tide_ghost_end() - simulate no more
 *
 * Context: process, callers take turns.
 */
void tide_ghost_end(void)
{
	static_branch_disable(&tide_ghost_on);
	tide_ghost_set(NULL);
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
 * Context: process.
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
