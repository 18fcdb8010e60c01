/* SPDX-License-Identifier: GPL-2.0-only */
/* What a front end numbers, a file for one, of which pages are in the pool: object.c. */
#ifndef TIDE_OBJECT_H
#define TIDE_OBJECT_H

#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/rbtree.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/xarray.h>

/**
 * struct tide_object - something of which pages are, or were, in the pool
 * @by_key: in the table, by @key; its front end's until it is known
 * @by_id: in the table, by @id
 * @key: what its front end finds it by; another object may have the same
 * @group: what it ends with, if not alone: a mounted file system for one
 * @id: its name on the wire
 * @dev: of what it is part, for those who trace
 * @number: its name there, likewise
 * @changes: grows whenever pages are dropped because they may have changed
 * @refs: references
 * @pass: of the walk that saw it last
 * @pages: leaves of entries, 8 bytes a page: version and slot of the lender
 * @bytes: that they take with what is above them, more or less
 * @outgoing: the pages that are in a buffer and not yet acknowledged, by index
 * @rcu: frees it
 * @free: its front end's, when nobody refers to it any more
 * @dead: nothing is put or recorded any more
 * @kept: its front end wants it known though nothing of it is in the pool
 * @used: put to or read from since the shrinker looked
 * @once: no index is used twice
 *
 * A front end embeds it. It is forgotten when nothing of it is in the pool, unless
 * it is kept. @pages, @bytes, @outgoing, @changes, @dead and @kept are guarded by
 * @pages.xa_lock, taken with interrupts off.
 */
struct tide_object {
	struct hlist_node by_key, by_id;
	u64 key;
	const void *group;
	u64 id;
	u64 number;
	dev_t dev;
	refcount_t refs;
	u64 changes;
	struct xarray pages;
	long bytes;
	struct rb_root outgoing;
	struct rcu_head rcu;
	void (*free)(struct tide_object *object);
	unsigned int pass;
	bool dead, kept, used, once;
};

#define tide_object_lock(object, flags)		xa_lock_irqsave(&(object)->pages, flags)
#define tide_object_unlock(object, flags)	xa_unlock_irqrestore(&(object)->pages, flags)

static inline void tide_object_used(struct tide_object *object)
{
	if (!READ_ONCE(object->used))
		WRITE_ONCE(object->used, true);
}

/* Takes a reference; the caller has one, or the object's lock and it is not dead. */
static inline void tide_object_hold(struct tide_object *object)
{
	refcount_inc(&object->refs);
}

/* Is it not dead? */
static inline bool tide_object_lives(const struct tide_object *object)
{
	/* A dead one has let go of all that it had: pairs with tide_object_end(). */
	return !smp_load_acquire(&object->dead);
}

/* Takes a reference, unless it is dead; in an RCU read section. */
static inline bool tide_object_get(struct tide_object *object)
{
	return tide_object_lives(object) && refcount_inc_not_zero(&object->refs);
}

/* What the catalog takes for its pages. */
static inline u64 tide_object_bytes(const struct tide_object *object)
{
	return max(READ_ONCE(object->bytes), 0L);
}

/* Is there nothing of it to be known, neither at a lender nor here? */
static inline bool tide_object_idle(const struct tide_object *object)
{
	return !READ_ONCE(object->kept) && xa_empty(&object->pages) &&
	       RB_EMPTY_ROOT(&object->outgoing);
}

void tide_object_init(struct tide_object *object, void (*free)(struct tide_object *object));
void tide_object_unref(struct tide_object *object);
bool tide_object_end(struct tide_object *object);
bool tide_object_empty(struct tide_object *object);

#endif /* TIDE_OBJECT_H */
