// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of values that are read often, in the guest's own memory: local first, which
 * utmem names as work to be done. What is at an index never changes, so a page that is
 * here is right as long as somebody asks for it.
 *
 * A value is let in when it is read again so soon that it would still have been here. If
 * few are, this helps nobody: all of it is given back, until more are. What is here
 * leaves by CLOCK (Corbato 1968), and when the guest is short of memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/shrinker.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "appmem/front.h"
#include "base/broken.h"
#include "base/compat.h"

static unsigned long front_bytes = SZ_16M;

#define TIDE_FRONT_MOST		16	/* pages of a value; a larger one is long on its way */
#define TIDE_FRONT_REACH	4	/* soon: before so many times what fits was read */
#define TIDE_FRONT_LOOKED	1024	/* reads after which one looks whether it helps: */
#define TIDE_FRONT_FEW		16	/* if one in so many was soon */
#define TIDE_FRONT_STEP		256	/* pages that leave at a time, while others wait */

/**
 * struct tide_front_page - a page that is here
 * @list: among all; the first goes first
 * @front: of its pool
 * @index: there
 * @page: its bytes
 * @used: was read since it was looked at the last time
 */
struct tide_front_page {
	struct list_head list;
	struct tide_front *front;
	unsigned long index;
	struct page *page;
	bool used;
};

static LIST_HEAD(tide_front_pages);
static unsigned long tide_front_count;		/* of them */
static u32 tide_front_time;			/* pages that were read, ever */
static unsigned int tide_front_reads, tide_front_soon;	/* since one looked */
static bool tide_front_helps = true;
static DEFINE_SPINLOCK(tide_front_lock);	/* all of it, and what is in pools' arrays */
static struct shrinker *tide_front_shrinker;

/* ------------------------------------------------------------------ */
/* leaving							       */
/* ------------------------------------------------------------------ */

static void tide_front_remove(struct tide_front_page *here)
{
	list_del(&here->list);
	xa_erase(&here->front->pages, here->index);
	here->front->count--;
	tide_front_count--;
	put_page(here->page);
	kfree(here);
}

/* Until there are only @most; returns how many went. */
static unsigned long tide_front_trim(unsigned long most)
{
	unsigned long before = tide_front_count;
	struct tide_front_page *here;

	while (tide_front_count > most) {
		here = list_first_entry(&tide_front_pages, struct tide_front_page, list);
		list_move_tail(&here->list, &tide_front_pages);
		if (!here->used || !most)
			tide_front_remove(here);
		else
			here->used = false;
	}
	return before - tide_front_count;
}

static unsigned long tide_front_most(void)
{
	return READ_ONCE(front_bytes) >> PAGE_SHIFT;
}

/* Gives some of the memory back that is more than there may be; returns whether that was all. */
static bool tide_front_give(void)
{
	unsigned long most = tide_front_most(), less;

	spin_lock(&tide_front_lock);
	less = tide_front_count - min_t(unsigned long, tide_front_count, TIDE_FRONT_STEP);
	tide_front_trim(max(most, less));
	spin_unlock(&tide_front_lock);
	return less <= most;
}

static int tide_front_set_bytes(const char *text, const struct kernel_param *parameter)
{
	int err = param_set_ulong(text, parameter);

	while (!err && !tide_front_give())
		cond_resched();
	return err;
}

static const struct kernel_param_ops tide_front_bytes_ops = {
	.set = tide_front_set_bytes,
	.get = param_get_ulong,
};
module_param_cb(front_bytes, &tide_front_bytes_ops, &front_bytes, 0644);
MODULE_PARM_DESC(front_bytes, "bytes of this guest's memory for values that are read often, at most (16 MiB; 0: none)");

/**
 * tide_front_drop() - pages that nobody will ask for any more
 * @front: of their pool
 * @first: index of the first one
 * @count: how many
 */
void tide_front_drop(struct tide_front *front, u64 first, unsigned int count)
{
	struct tide_front_page *here;
	unsigned int i;

	if (xa_empty(&front->pages) || count > TIDE_FRONT_MOST)
		return;
	spin_lock(&tide_front_lock);
	for (i = 0; i < count; i++) {
		here = xa_load(&front->pages, first + i);
		if (here)
			tide_front_remove(here);
	}
	spin_unlock(&tide_front_lock);
}

/**
 * tide_front_end() - the end of a pool
 * @front: of which nothing is asked for any more
 *
 * Context: process.
 */
void tide_front_end(struct tide_front *front)
{
	struct tide_front_page *here;
	unsigned long index;

	spin_lock(&tide_front_lock);
	xa_for_each(&front->pages, index, here)
		tide_front_remove(here);
	spin_unlock(&tide_front_lock);
	xa_destroy(&front->pages);
}

static unsigned long tide_front_shrink_count(struct shrinker *shrinker,
					     struct shrink_control *sc)
{
	return READ_ONCE(tide_front_count);
}

static unsigned long tide_front_shrink_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long most, freed;

	spin_lock(&tide_front_lock);
	most = tide_front_count - min(sc->nr_to_scan, tide_front_count);
	freed = tide_front_trim(most);
	spin_unlock(&tide_front_lock);
	return freed ?: SHRINK_STOP;
}

/* ------------------------------------------------------------------ */
/* being read							       */
/* ------------------------------------------------------------------ */

/* From time to time: are enough values read again so soon? */
static void tide_front_look(bool soon)
{
	tide_front_soon += soon;
	if (++tide_front_reads < TIDE_FRONT_LOOKED)
		return;
	tide_front_helps = tide_front_soon * TIDE_FRONT_FEW >= tide_front_reads ||
			   tide_broken(APP_FRONT_OFF);
	tide_front_reads = 0;
	tide_front_soon = 0;
	if (!tide_front_helps)
		tide_front_trim(0);
}

/**
 * tide_front_seen() - a value is read
 * @seen: when that was the last time, or 0; set to now
 * @count: pages that it has
 *
 * Return: is it read so often that its pages are worth to be kept here?
 */
bool tide_front_seen(u32 *seen, unsigned int count)
{
	bool soon;

	if (count > TIDE_FRONT_MOST)
		return false;
	spin_lock(&tide_front_lock);
	tide_front_time += count;
	soon = *seen && tide_front_time - *seen < TIDE_FRONT_REACH * tide_front_most();
	*seen = tide_front_time ?: 1;
	tide_front_look(soon);
	soon &= tide_front_helps;
	spin_unlock(&tide_front_lock);
	return soon;
}

/* Under the lock: are all of them here? */
static bool tide_front_find(struct tide_front *front, u64 first, struct page **pages,
			    unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct tide_front_page *here = xa_load(&front->pages, first + i);

		if (!here)
			return false;
		here->used = true;
		pages[i] = here->page;
	}
	return true;
}

/**
 * tide_front_get() - pages, if they are here
 * @front: of their pool
 * @first: index of the first one
 * @pages: set to all of them, each with a reference, or to rubbish
 * @count: how many
 *
 * Return: whether all are here.
 */
bool tide_front_get(struct tide_front *front, u64 first, struct page **pages, unsigned int count)
{
	unsigned int i;
	bool found;

	if (xa_empty(&front->pages) || count > TIDE_FRONT_MOST)
		return false;
	spin_lock(&tide_front_lock);
	found = tide_front_find(front, first, pages, count);
	for (i = 0; found && i < count; i++)
		get_page(pages[i]);
	spin_unlock(&tide_front_lock);
	return found;
}

/* ------------------------------------------------------------------ */
/* coming							       */
/* ------------------------------------------------------------------ */

/* Under the lock: the page is here, unless one is already or none can be. */
static bool tide_front_insert(struct tide_front_page *fresh)
{
	struct xarray *pages = &fresh->front->pages;

	if (!tide_front_helps || xa_load(pages, fresh->index) ||
	    xa_err(xa_store(pages, fresh->index, fresh, GFP_NOWAIT)))
		return false;
	list_add_tail(&fresh->list, &tide_front_pages);
	fresh->front->count++;
	tide_front_count++;
	tide_front_trim(tide_front_most());
	return true;
}

/*
 * A copy, as what is here is the guest's: who has read it would have it in his memory
 * cgroup, which cannot have it back.
 */
static struct tide_front_page *tide_front_copy(struct tide_front *front, u64 index,
					       struct page *page)
{
	struct tide_front_page *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);

	if (!fresh)
		return NULL;
	*fresh = (struct tide_front_page) {
		.front = front,
		.index = index,
		.page = alloc_page(GFP_KERNEL | __GFP_NOWARN),
	};
	if (fresh->page) {
		copy_highpage(fresh->page, page);
		return fresh;
	}
	kfree(fresh);
	return NULL;
}

static void tide_front_add_page(struct tide_front *front, u64 index, struct page *page)
{
	struct tide_front_page *fresh;
	bool taken;

	if (xa_load(&front->pages, index))
		return;
	fresh = tide_front_copy(front, index, page);
	if (!fresh)
		return;
	spin_lock(&tide_front_lock);
	taken = tide_front_insert(fresh);
	spin_unlock(&tide_front_lock);
	if (taken)
		return;
	put_page(fresh->page);
	kfree(fresh);
}

/**
 * tide_front_add() - pages are worth to be kept here
 * @front: of their pool
 * @first: index of the first one
 * @pages: they are copied
 * @count: how many
 *
 * Context: process.
 */
void tide_front_add(struct tide_front *front, u64 first, struct page **pages, unsigned int count)
{
	unsigned int i;

	if (tide_broken(APP_FRONT))
		return;
	for (i = 0; i < count; i++)
		tide_front_add_page(front, first + i, pages[i]);
}

/**
 * tide_front_bytes_of() - what is here of a pool
 * @front: its
 */
u64 tide_front_bytes_of(const struct tide_front *front)
{
	return (u64)READ_ONCE(front->count) << PAGE_SHIFT;
}

/**
 * tide_front_bytes() - what is here
 */
u64 tide_front_bytes(void)
{
	return (u64)READ_ONCE(tide_front_count) << PAGE_SHIFT;
}

int tide_front_init(void)
{
	tide_front_shrinker = tide_shrinker_create("tidepool-values", tide_front_shrink_count,
						   tide_front_shrink_scan);
	return tide_front_shrinker ? 0 : -ENOMEM;
}

void tide_front_exit(void)
{
	tide_shrinker_destroy(tide_front_shrinker);
}
