// SPDX-License-Identifier: GPL-2.0-only
/* An object, from its first reference to its last, and to its end. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/random.h>
#include <linux/rcupdate.h>

#include "base/stats.h"
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

/**
 * tide_object_unref() - drop a reference, with the last one the object
 * @object: the object
 *
 * For the table alone: everybody else calls tide_object_put() (catalog_table.c), which
 * takes an object of which nothing is left out of the table.
 *
 * Context: any.
 */
void tide_object_unref(struct tide_object *object)
{
	if (refcount_dec_and_test(&object->refs))
		call_rcu(&object->rcu, tide_object_free_rcu);
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
