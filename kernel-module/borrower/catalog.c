// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog: which pages of which object are where, in which version (Puma,
 * section 3.4.1). catalog_table.c has the objects, catalog_pages.c the pages of
 * each. What the catalog does not hold is read from elsewhere, so losing an entry
 * is always safe; keeping one too long never is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/slab.h>

#include "base/stats.h"
#include "borrower/catalog.h"
#include "borrower/catalog_ages.h"
#include "borrower/catalog_pages.h"
#include "borrower/catalog_table.h"
#include "borrower/forgets.h"
#include "borrower/object.h"
#include "borrower/peer.h"

#define TIDE_FORGOTTEN_MOST	1024	/* entries, in a small catalog */

int tide_catalog_init(void)
{
	if (!tide_leaves_init() && !tide_table_init())
		return 0;
	tide_catalog_exit();
	return -ENOMEM;
}

/* Every lender and every object is gone. */
void tide_catalog_exit(void)
{
	tide_table_exit();
	tide_leaves_exit();
}

/**
 * tide_catalog_evicted() - a lender says that it dropped a page
 * @slot: the lender's
 * @id: the object's name on the wire
 * @index: page index
 * @version: of the page it dropped
 *
 * What it says of pages that another lender has is nothing.
 *
 * Context: process.
 */
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version)
{
	struct tide_object *object = tide_table_find_id(id);

	if (!object)
		return;
	tide_object_evicted(object, index, version, slot);
	tide_object_put(object);
}

/* ------------------------------------------------------------------ */
/* purges							       */
/* ------------------------------------------------------------------ */

static void tide_catalog_count(s64 *believed, s64 *forgotten)
{
	struct tide_lender *lender;
	int slot;

	*believed = 0;
	*forgotten = 0;
	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (!lender)
			continue;
		*believed += atomic64_read(&lender->catalog_pages);
		*forgotten += tide_ages_forgotten(&lender->ages);
	}
	rcu_read_unlock();
}

static void tide_purge_object(struct tide_object *object, void *before)
{
	tide_object_purge(object, before);
}

/* The lender is to have no page left. */
static void tide_purge_check(int slot)
{
	struct tide_lender *lender;
	s64 left = 0;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender)
		left = atomic64_read(&lender->catalog_pages) + tide_ages_forgotten(&lender->ages);
	if (left)
		tide_warn("lenders/%s: %lld pages of a session that is over\n",
			  lender->name, left);
	rcu_read_unlock();
}

/**
 * tide_catalog_purge_lender() - forget all pages that a lender has
 * @slot: the lender's slot; no put of its is under way any more
 *
 * Context: process.
 */
void tide_catalog_purge_lender(int slot)
{
	u64 before[TIDE_MAX_LENDERS] = { };

	before[slot] = U64_MAX;
	tide_table_for_each(NULL, tide_purge_object, before);
	tide_purge_check(slot);
}

/* Clears the entries that are forgotten. */
static void tide_catalog_sweep(void)
{
	u64 before[TIDE_MAX_LENDERS] = { };
	struct tide_lender *lender;
	int slot;

	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (lender)
			before[slot] = READ_ONCE(lender->ages.oldest);
	}
	rcu_read_unlock();
	tide_table_for_each(NULL, tide_purge_object, before);
}

/**
 * tide_catalog_sweep_if_due() - clear forgotten entries when there are many
 *
 * They may be an eighth of the others, so that clearing one costs a look at nine.
 *
 * Context: process.
 */
void tide_catalog_sweep_if_due(void)
{
	s64 believed, forgotten;

	tide_catalog_count(&believed, &forgotten);
	if (forgotten > TIDE_FORGOTTEN_MOST && forgotten > believed / 8)
		tide_catalog_sweep();
}

static void tide_catalog_tidy(struct work_struct *work)
{
	tide_catalog_sweep_if_due();
}

static DECLARE_WORK(tide_catalog_work, tide_catalog_tidy);

/**
 * tide_catalog_granted() - forget what a lender cannot have any more
 * @lender: its new grant is set
 *
 * It says what it drops, but of so many pages some notices may be lost.
 *
 * Context: process.
 */
void tide_catalog_granted(struct tide_lender *lender)
{
	tide_ages_granted(lender);
	queue_work(tide_catalog_queue, &tide_catalog_work);
}

/**
 * tide_catalog_evicted_before() - a lender says that it has nothing older than a version
 * @lender: the lender
 * @version: the version
 *
 * Ages that are wholly older are forgotten. Of the age in which the version is the
 * lender says which pages it has dropped.
 *
 * Context: process; does not depend on how many they are.
 */
void tide_catalog_evicted_before(struct tide_lender *lender, u64 version)
{
	tide_ages_evicted_before(lender, version);
	queue_work(tide_catalog_queue, &tide_catalog_work);
}

/* ------------------------------------------------------------------ */
/* what the shrinker takes					       */
/* ------------------------------------------------------------------ */

/**
 * tide_catalog_shrink() - give memory back, that of cold objects first
 * @objects: how many entries and objects
 * @pages: set to how many of these were entries
 *
 * An object that was put to or read from the pool since it was last looked at is
 * spared once. One whose last entry goes counts as given back, too; while its inode
 * is in memory it goes only with that.
 *
 * Context: any in which memory may be reclaimed; does not wait.
 * Return: how many were given back.
 */
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages)
{
	struct tide_object *object;
	unsigned long freed = 0;

	*pages = 0;
	while (freed < objects && (object = tide_table_cold())) {
		unsigned int n = tide_object_shrink(object, min_t(unsigned long, objects - freed,
							      TIDE_DROP_CHUNK));

		*pages += n;
		freed += n + xa_empty(&object->pages);
		tide_object_put(object);
	}
	return freed;
}

/**
 * tide_catalog_pages() - how many entries does the catalog have?
 */
u64 tide_catalog_pages(void)
{
	s64 believed, forgotten;

	tide_catalog_count(&believed, &forgotten);
	return believed + forgotten;
}

/* ------------------------------------------------------------------ */
/* one that its front end begins and ends			       */
/* ------------------------------------------------------------------ */

static void tide_object_kfree(struct tide_object *object)
{
	kfree(object);
}

/* No two of them are the same, whatever they are called. */
static bool tide_object_is_another(const struct tide_object *object, const void *what)
{
	return false;
}

/**
 * tide_object_create() - an object that is there until tide_object_destroy()
 * @dev: what it is, for those who trace
 *
 * Nobody finds it by a key. Its memory is this module's, so that its front end's may
 * go while pages of it are on their way.
 *
 * Context: process.
 * Return: the object, or NULL.
 */
struct tide_object *tide_object_create(dev_t dev)
{
	struct tide_object *object = kzalloc(sizeof(*object), GFP_KERNEL);

	if (!object)
		return NULL;
	tide_object_init(object, tide_object_kfree);
	object->key = (unsigned long)object;
	object->group = object;
	object->dev = dev;
	object->kept = true;
	refcount_set(&object->refs, 2);		/* the table's, the caller's */
	tide_table_insert(object, tide_object_is_another, NULL);
	return object;
}
EXPORT_SYMBOL_GPL(tide_object_create);

/**
 * tide_object_destroy() - the end of such an object, with all that the pool has of it
 * @object: nothing is read, put or dropped of it any more
 *
 * Context: process.
 */
void tide_object_destroy(struct tide_object *object)
{
	unsigned long flags;
	int slot;

	/* One note for all of it: those on single pages may find no room. */
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++)
		tide_forget(slot, object, 0, ULONG_MAX);
	tide_object_lock(object, flags);
	object->kept = false;
	tide_object_end(object);
	tide_object_unlock(object, flags);
	tide_object_drop(object, 0, ULONG_MAX);
	tide_object_forget(object);
	tide_object_put(object);
}
EXPORT_SYMBOL_GPL(tide_object_destroy);
