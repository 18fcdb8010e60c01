// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages of an object in the catalog. A page costs an entry of 8 bytes: version
 * and slot of the lender. Sixteen entries make a leaf, and the object's xarray
 * holds its leaves: with the tree that is 2.15 MiB to a GiB of pages.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/slab.h>

#include "borrower/catalog_ages.h"
#include "borrower/catalog_pages.h"
#include "borrower/forgets.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"

#define TIDE_SLOT_BITS		3
#define TIDE_LEAF_BITS		4
#define TIDE_LEAF_ENTRIES	16

/* The entries of pages that lie side by side; 0 where there is none. */
struct tide_leaf {
	u64 entry[TIDE_LEAF_ENTRIES];
};

static struct kmem_cache *tide_leaf_cache;

int tide_leaves_init(void)
{
	/* The shrinker gives leaves back, so they count as available memory. */
	tide_leaf_cache = kmem_cache_create("tidepool_leaf", sizeof(struct tide_leaf), 0,
					    SLAB_RECLAIM_ACCOUNT, NULL);
	return tide_leaf_cache ? 0 : -ENOMEM;
}

void tide_leaves_exit(void)
{
	kmem_cache_destroy(tide_leaf_cache);
}

/* ------------------------------------------------------------------ */
/* entries and leaves; the object is locked			       */
/* ------------------------------------------------------------------ */

static_assert(TIDE_LEAF_ENTRIES == 1 << TIDE_LEAF_BITS);

static u64 tide_entry(u64 version, int slot)
{
	return version << TIDE_SLOT_BITS | slot;
}

static u64 tide_entry_version(u64 entry)
{
	return entry >> TIDE_SLOT_BITS;
}

static int tide_entry_slot(u64 entry)
{
	return entry & (TIDE_MAX_LENDERS - 1);
}

static u64 *tide_leaf_entry(struct tide_leaf *leaf, pgoff_t index)
{
	return &leaf->entry[index & (TIDE_LEAF_ENTRIES - 1)];
}

/*
 * What goes and comes with the leaf at the state's index, where there is one: itself, and
 * the nodes that have nothing else below them. A tree that grows or shrinks at its top has
 * some more or less.
 */
static long tide_leaf_bytes(const struct xa_state *xas)
{
	const struct xa_node *node = xas->xa_node;
	long bytes = sizeof(struct tide_leaf);

	for (; node && node->count == 1; node = xa_parent_locked(xas->xa, node))
		bytes += sizeof(*node);
	return bytes;
}

static void tide_leaf_count(struct xa_state *xas, long bytes)
{
	struct tide_object *object = container_of(xas->xa, struct tide_object, pages);

	WRITE_ONCE(object->bytes, xa_empty(xas->xa) ? 0 : object->bytes + bytes);
}

/* The leaf at the state's index, made if need be; NULL: no memory. */
static struct tide_leaf *tide_leaf_make(struct xa_state *xas)
{
	struct tide_leaf *leaf = xas_load(xas);

	if (leaf)
		return leaf;
	leaf = kmem_cache_zalloc(tide_leaf_cache, GFP_NOWAIT | __GFP_NOWARN);
	if (!leaf)
		return NULL;
	xas_store(xas, leaf);
	if (!xas_error(xas)) {
		tide_leaf_count(xas, tide_leaf_bytes(xas));
		return leaf;
	}
	kmem_cache_free(tide_leaf_cache, leaf);
	return NULL;
}

/* Entries of a leaf were cleared: it goes when it was the last. */
static void tide_leaf_trim(struct xa_state *xas, struct tide_leaf *leaf)
{
	long bytes;

	if (memchr_inv(leaf, 0, sizeof(*leaf)))
		return;
	bytes = tide_leaf_bytes(xas);
	xas_store(xas, NULL);
	tide_leaf_count(xas, -bytes);
	kmem_cache_free(tide_leaf_cache, leaf);
}

static void tide_entry_make(u64 *entry, u64 version, int slot)
{
	struct tide_lender *lender;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender) {
		*entry = tide_entry(version, slot);
		tide_ages_enter(lender, version);
	}
	rcu_read_unlock();
}

static void tide_entry_clear(u64 *entry)
{
	struct tide_lender *lender;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[tide_entry_slot(*entry)]);
	if (lender)
		tide_ages_leave(lender, tide_entry_version(*entry));
	rcu_read_unlock();
	*entry = 0;
}

static bool tide_entry_believed(u64 entry)
{
	struct tide_lender *lender;
	bool believed;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[tide_entry_slot(entry)]);
	believed = lender && !tide_ages_forgot(&lender->ages, tide_entry_version(entry));
	rcu_read_unlock();
	return believed;
}

/* ------------------------------------------------------------------ */
/* forgetting pages						       */
/* ------------------------------------------------------------------ */

/* A run of dropped pages of one lender, told to it as one range. */
struct tide_run {
	int slot;
	pgoff_t first, last;
	long count;
};

static void tide_run_end(struct tide_object *object, struct tide_run *run)
{
	if (!run->count)
		return;
	tide_forget(run->slot, object, run->first, run->last);
	run->count = 0;
}

static void tide_run_add(struct tide_object *object, struct tide_run *run,
			 int slot, pgoff_t index)
{
	if (run->count && (run->slot != slot || run->last + 1 != index))
		tide_run_end(object, run);
	if (!run->count) {
		run->slot = slot;
		run->first = index;
	}
	run->last = index;
	run->count++;
}

/* Clears the entries of a range in the leaf at the state's index. */
static unsigned int tide_leaf_drop(struct tide_object *object, struct tide_run *run,
				   struct xa_state *xas, struct tide_leaf *leaf,
				   pgoff_t first, pgoff_t last)
{
	pgoff_t base = xas->xa_index << TIDE_LEAF_BITS;
	unsigned int i, n = 0;

	for (i = 0; i < TIDE_LEAF_ENTRIES; i++) {
		if (!leaf->entry[i] || base + i < first || base + i > last)
			continue;
		tide_run_add(object, run, tide_entry_slot(leaf->entry[i]), base + i);
		tide_entry_clear(&leaf->entry[i]);
		n++;
	}
	tide_leaf_trim(xas, leaf);
	return n;
}

/*
 * Drops the entries of a range, but not many more than @limit; @n is how many
 * it were. Returns where to go on, or 0 when done.
 */
static pgoff_t tide_drop_some(struct tide_object *object, pgoff_t first, pgoff_t last,
			      unsigned int limit, unsigned int *n)
{
	XA_STATE(xas, &object->pages, first >> TIDE_LEAF_BITS);
	struct tide_run run = { };
	struct tide_leaf *leaf;
	pgoff_t next = 0;

	*n = 0;
	xas_for_each(&xas, leaf, last >> TIDE_LEAF_BITS) {
		*n += tide_leaf_drop(object, &run, &xas, leaf, first, last);
		if (*n >= limit && xas.xa_index < last >> TIDE_LEAF_BITS) {
			next = (xas.xa_index + 1) << TIDE_LEAF_BITS;
			break;
		}
	}
	tide_run_end(object, &run);
	return next;
}

static pgoff_t tide_drop_chunk(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	unsigned int n;

	WRITE_ONCE(object->changes, object->changes + 1);
	tide_outgoing_drop_locked(object, first, last);
	return tide_drop_some(object, first, last, TIDE_DROP_CHUNK, &n);
}

/**
 * tide_object_drop_locked() - forget a few pages
 * @object: the object, locked
 * @first: first page index
 * @last: last page index, inclusive; a folio's worth of pages at most
 *
 * Context: any.
 */
void tide_object_drop_locked(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	while ((first = tide_drop_chunk(object, first, last)))
		;
}

/**
 * tide_object_drop() - forget a range of pages
 * @object: the object, not locked
 * @first: first page index
 * @last: last page index, inclusive
 *
 * Context: any; interrupts are off for one chunk at a time.
 */
void tide_object_drop(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	unsigned long flags;

	do {
		tide_object_lock(object, flags);
		first = tide_drop_chunk(object, first, last);
		tide_object_unlock(object, flags);
	} while (first);
}
EXPORT_SYMBOL_GPL(tide_object_drop);

/**
 * tide_object_unlearn() - forget a page that the pool has wrong
 * @object: the object, not locked
 * @index: page index
 *
 * The object has not changed: other pages of it may be compared all the same.
 *
 * Context: any.
 */
void tide_object_unlearn(struct tide_object *object, pgoff_t index)
{
	unsigned long flags;
	unsigned int n;

	tide_object_lock(object, flags);
	tide_outgoing_drop_locked(object, index, index);
	tide_drop_some(object, index, index, 1, &n);
	tide_object_unlock(object, flags);
}

/**
 * tide_object_shrink() - forget some pages, the first ones
 * @object: the object, not locked
 * @limit: how many, or a few more
 *
 * Context: any.
 * Return: how many it were.
 */
unsigned int tide_object_shrink(struct tide_object *object, unsigned int limit)
{
	unsigned long flags;
	unsigned int n;

	tide_object_lock(object, flags);
	tide_drop_some(object, 0, ULONG_MAX, limit, &n);
	tide_object_unlock(object, flags);
	return n;
}

/* Clears the entries that are older than what @before says for their lender. */
static void tide_leaf_purge(struct xa_state *xas, struct tide_leaf *leaf, const u64 *before)
{
	unsigned int i;

	for (i = 0; i < TIDE_LEAF_ENTRIES; i++) {
		u64 entry = leaf->entry[i];

		if (entry && tide_entry_version(entry) < before[tide_entry_slot(entry)])
			tide_entry_clear(&leaf->entry[i]);
	}
	tide_leaf_trim(xas, leaf);
}

/*
 * Purges a few leaves, from @at on; returns where to go on, or 0 when done. It does
 * not go on with the same state (xas_pause()): where the last leaf of a node has gone
 * that stands on the node above, and would pass over all leaves of the next one.
 */
static unsigned long tide_purge_some(struct tide_object *object, unsigned long at,
				     const u64 *before)
{
	XA_STATE(xas, &object->pages, at);
	struct tide_leaf *leaf;
	unsigned int n = 0;

	xas_for_each(&xas, leaf, ULONG_MAX) {
		tide_leaf_purge(&xas, leaf, before);
		if (++n == TIDE_DROP_CHUNK / TIDE_LEAF_ENTRIES)
			return xas.xa_index + 1;
	}
	return 0;
}

/**
 * tide_object_purge() - forget the old pages of each lender
 * @object: the object, not locked
 * @before: by slot: entries of older versions go
 *
 * Context: process; interrupts are off for one chunk at a time.
 */
void tide_object_purge(struct tide_object *object, const u64 *before)
{
	unsigned long at = 0, flags;

	do {
		tide_object_lock(object, flags);
		at = tide_purge_some(object, at, before);
		tide_object_unlock(object, flags);
		cond_resched();
	} while (at);
}

/* ------------------------------------------------------------------ */
/* which version of a page is where					       */
/* ------------------------------------------------------------------ */

/**
 * tide_object_version() - which version of a page does a lender have?
 * @object: the object, locked
 * @index: page index
 * @slot: set to the lender's slot
 *
 * Return: the version, or 0 when no lender is believed to have the page.
 */
u64 tide_object_version(struct tide_object *object, pgoff_t index, int *slot)
{
	struct tide_leaf *leaf = xa_load(&object->pages, index >> TIDE_LEAF_BITS);
	u64 entry = leaf ? *tide_leaf_entry(leaf, index) : 0;

	if (!entry || !tide_entry_believed(entry))
		return 0;
	*slot = tide_entry_slot(entry);
	return tide_entry_version(entry);
}
EXPORT_SYMBOL_GPL(tide_object_version);

/**
 * tide_object_where() - where is a page?
 * @object: the object, locked
 * @index: page index
 *
 * Return: the slot of a lender, TIDE_BUFFERED or TIDE_NOWHERE.
 */
int tide_object_where(struct tide_object *object, pgoff_t index)
{
	int slot;

	if (tide_outgoing_find(object, index))
		return TIDE_BUFFERED;
	return tide_object_version(object, index, &slot) ? slot : TIDE_NOWHERE;
}
EXPORT_SYMBOL_GPL(tide_object_where);

/**
 * tide_object_has() - may the pool have any of these pages?
 * @object: the object, not locked
 * @first: first page index
 * @last: last page index, inclusive
 *
 * Context: any.
 * Return: false if it has none.
 */
bool tide_object_has(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	unsigned long at = first >> TIDE_LEAF_BITS, flags;
	bool has;

	tide_object_lock(object, flags);
	has = xa_find(&object->pages, &at, last >> TIDE_LEAF_BITS, XA_PRESENT) ||
	      tide_outgoing_has(object, first, last);
	tide_object_unlock(object, flags);
	return has;
}
EXPORT_SYMBOL_GPL(tide_object_has);

/* Forgets the entry of a page if it is of this version, and of this lender unless that is -1. */
static void tide_entry_erase(struct tide_object *object, pgoff_t index, u64 version, int slot)
{
	XA_STATE(xas, &object->pages, index >> TIDE_LEAF_BITS);
	struct tide_leaf *leaf = xas_load(&xas);
	u64 *entry;

	if (!leaf)
		return;
	entry = tide_leaf_entry(leaf, index);
	if (!*entry || tide_entry_version(*entry) != version ||
	    (slot >= 0 && tide_entry_slot(*entry) != slot))
		return;
	tide_entry_clear(entry);
	tide_leaf_trim(&xas, leaf);
}

/**
 * tide_object_erase_locked() - forget one version of a page
 * @object: the object, locked
 * @index: page index
 * @version: the version; another one stays
 */
void tide_object_erase_locked(struct tide_object *object, pgoff_t index, u64 version)
{
	tide_entry_erase(object, index, version, -1);
}

void tide_object_erase(struct tide_object *object, pgoff_t index, u64 version)
{
	unsigned long flags;

	tide_object_lock(object, flags);
	tide_object_erase_locked(object, index, version);
	tide_object_unlock(object, flags);
}

/**
 * tide_object_evicted() - forget one version of a page, if this lender has it
 * @object: the object, not locked
 * @index: page index
 * @version: the version
 * @slot: of the lender
 *
 * Context: any.
 */
void tide_object_evicted(struct tide_object *object, pgoff_t index, u64 version, int slot)
{
	unsigned long flags;

	tide_object_lock(object, flags);
	tide_entry_erase(object, index, version, slot);
	tide_object_unlock(object, flags);
}

/**
 * tide_object_record() - note that a lender is about to have a page
 * @object: the object, not locked
 * @index: page index
 * @version: of the page
 * @slot: of the lender
 * @still: asked under the lock: is the page still worth recording?
 * @arg: its argument
 *
 * Context: process; allocates without waiting.
 * Return: 0, -ESTALE when @still said no, or -ENOMEM.
 */
int tide_object_record(struct tide_object *object, pgoff_t index, u64 version,
		       int slot, bool (*still)(void *arg), void *arg)
{
	XA_STATE(xas, &object->pages, index >> TIDE_LEAF_BITS);
	struct tide_leaf *leaf;
	unsigned long flags;
	int err = 0;
	u64 *entry;

	xas_lock_irqsave(&xas, flags);
	if (!still(arg)) {
		err = -ESTALE;
		goto out;
	}
	leaf = tide_leaf_make(&xas);
	if (!leaf) {
		err = -ENOMEM;
		goto out;
	}
	entry = tide_leaf_entry(leaf, index);
	if (*entry)
		tide_entry_clear(entry);
	tide_entry_make(entry, version, slot);
	tide_object_used(object);
out:
	xas_unlock_irqrestore(&xas, flags);
	return err;
}
