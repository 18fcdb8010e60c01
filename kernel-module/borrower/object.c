// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of an object: from when its front end makes it known until nothing of
 * it is in the pool, or until its end.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "base/stats.h"
#include "borrower/catalog.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"

static struct lock_class_key tide_object_lock_key;

/**
 * tide_object_init() - an object that is not known yet
 * @object: zeroes
 * @free: called when nobody refers to it any more
 *
 * Context: any.
 */
void tide_object_init(struct tide_object *object, void (*free)(struct tide_object *object))
{
	xa_init_flags(&object->pages, XA_FLAGS_LOCK_IRQ);
	lockdep_set_class(&object->pages.xa_lock, &tide_object_lock_key);
	object->outgoing = RB_ROOT;
	object->id = get_random_u64();	/* tells a lender nothing of what it is */
	object->free = free;
}

static void tide_object_free_rcu(struct rcu_head *rcu)
{
	struct tide_object *object = container_of(rcu, struct tide_object, rcu);

	if (!xa_empty(&object->pages))
		tide_warn("object %llu freed with entries\n", object->id);
	xa_destroy(&object->pages);
	object->free(object);
}

static void tide_object_unref(struct tide_object *object)
{
	if (refcount_dec_and_test(&object->refs))
		call_rcu(&object->rcu, tide_object_free_rcu);
}

/* Is there nothing of an object to be known, neither at a lender nor here? */
static bool tide_object_idle(struct tide_object *object)
{
	return !READ_ONCE(object->kept) && xa_empty(&object->pages) &&
	       RB_EMPTY_ROOT(&object->outgoing);
}

/**
 * tide_object_end() - nothing is put or recorded from here on
 * @object: locked; it has let go of all that its front end had of it
 *
 * Return: false if that was so before.
 */
bool tide_object_end(struct tide_object *object)
{
	bool alive = !object->dead;

	/* pairs with tide_object_lives() */
	smp_store_release(&object->dead, true);
	return alive;
}

/**
 * tide_object_forget() - an object is known no longer
 * @object: whose end was called for now
 *
 * Until its last entry has gone tide_table_for_each() sees it.
 *
 * Context: any.
 */
void tide_object_forget(struct tide_object *object)
{
	tide_table_remove(object);
	tide_object_unref(object);
}

static void tide_object_retire(struct tide_object *object)
{
	unsigned long flags;
	bool idle;

	tide_object_lock(object, flags);
	idle = !object->dead && tide_object_idle(object);
	if (idle)
		tide_object_end(object);
	tide_object_unlock(object, flags);
	if (idle)
		tide_object_forget(object);
}

/**
 * tide_object_put() - drop a reference
 * @object: the object
 *
 * One that has become idle is forgotten. Whoever takes its last page, or keeps it
 * no longer, has a reference, so that this is not missed; whoever is about to put a
 * page of it meanwhile finds it dead.
 *
 * Context: any.
 */
void tide_object_put(struct tide_object *object)
{
	if (tide_object_idle(object))
		tide_object_retire(object);
	tide_object_unref(object);
}

/**
 * tide_object_empty() - is no page of the object in the pool?
 * @object: the object
 */
bool tide_object_empty(struct tide_object *object)
{
	unsigned long flags;
	bool empty;

	tide_object_lock(object, flags);
	empty = xa_empty(&object->pages) && RB_EMPTY_ROOT(&object->outgoing);
	tide_object_unlock(object, flags);
	return empty;
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

	tide_object_lock(object, flags);
	object->kept = false;
	tide_object_end(object);
	tide_object_unlock(object, flags);
	tide_object_drop(object, 0, ULONG_MAX);
	tide_object_forget(object);
	tide_object_put(object);
}
EXPORT_SYMBOL_GPL(tide_object_destroy);
