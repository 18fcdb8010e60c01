// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of the catalog's objects, by inode and by number. It grows and shrinks
 * with them, in a worker, a few objects at a time: the put path allocates nothing
 * and is never kept waiting. (The kernel's rhashtable allocates where a bucket is
 * long, and on 6.1 its worker holds a bucket with interrupts on, which whoever has
 * the lock of a mapping must not wait for.)
 *
 * Lookups take no lock. An object that is moved meanwhile may be passed over, and
 * one that is not found is a page that is not dropped: so a lookup that finds
 * nothing asks whether one was moved, and then looks again.
 */
#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/seqlock.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "base/broken.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"

#define TIDE_TABLE_LEAST	10	/* bits */
#define TIDE_TABLE_MOST		26
#define TIDE_MOVES		64	/* objects moved with interrupts off */
#define TIDE_HAND_BUCKETS	64	/* looked at with interrupts off */

/* Small files are evicted by the hundred, and whoever evicts them has the processor. */
struct workqueue_struct *tide_catalog_queue;

struct tide_table __rcu *tide_table;
struct tide_table __rcu *tide_table_next;
static DEFINE_SPINLOCK(tide_objects_lock);	/* writers of both */
seqcount_spinlock_t tide_moves = SEQCNT_SPINLOCK_ZERO(tide_moves, &tide_objects_lock);
static DEFINE_MUTEX(tide_table_mutex);		/* walked, or moved */
unsigned int tide_object_count;

static void tide_table_resize(struct work_struct *work);
static DECLARE_WORK(tide_table_work, tide_table_resize);

static struct tide_table *tide_table_alloc(unsigned int bits)
{
	struct tide_table *table;

	table = kvzalloc(struct_size(table, by_key, 2UL << bits),
			 GFP_KERNEL | __GFP_NOWARN);
	if (table) {
		table->bits = bits;
		table->by_id = table->by_key + (1UL << bits);
	}
	return table;
}

int tide_table_init(void)
{
	struct tide_table *table = tide_table_alloc(TIDE_TABLE_LEAST);

	RCU_INIT_POINTER(tide_table, table);
	tide_catalog_queue = alloc_workqueue("tidepool_catalog",
					     WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 2);
	return table && tide_catalog_queue ? 0 : -ENOMEM;
}

/* No object is in it. */
void tide_table_exit(void)
{
	if (tide_catalog_queue)
		destroy_workqueue(tide_catalog_queue);	/* its work is done first */
	kvfree(rcu_dereference_protected(tide_table, true));
}

/* Whoever calls has the lock or the mutex. */
static struct tide_table *tide_table_now(void)
{
	return rcu_dereference_protected(tide_table, lockdep_is_held(&tide_objects_lock) ||
					 lockdep_is_held(&tide_table_mutex));
}

/* Where objects go that become known. */
static struct tide_table *tide_table_newest(void)
{
	return rcu_dereference_protected(tide_table_next, lockdep_is_held(&tide_objects_lock)) ?:
	       tide_table_now();
}

/* ------------------------------------------------------------------ */
/* looking up							       */
/* ------------------------------------------------------------------ */

static struct hlist_head *tide_bucket(struct tide_table *table, u64 key)
{
	return &table->by_key[hash_64(key, table->bits)];
}

static struct hlist_head *tide_bucket_by_id(struct tide_table *table, u64 id)
{
	return &table->by_id[hash_64(id, table->bits)];
}

static struct tide_object *tide_table_search_id(struct tide_table *table, u64 id)
{
	struct tide_object *object;

	if (!table)
		return NULL;
	hlist_for_each_entry_rcu(object, tide_bucket_by_id(table, id), by_id)
		if (object->id == id && tide_object_get(object))
			return object;
	return NULL;
}

/**
 * tide_table_find_id() - the object that has a number
 * @id: the object's name on the wire
 *
 * Context: any.
 * Return: the object with a reference taken, or NULL.
 */
struct tide_object *tide_table_find_id(u64 id)
{
	struct tide_object *object;
	unsigned int seq;

	rcu_read_lock();
	do {
		seq = read_seqcount_begin(&tide_moves);
		object = tide_table_search_id(rcu_dereference(tide_table), id) ?:
		       tide_table_search_id(rcu_dereference(tide_table_next), id);
	} while (!object && read_seqcount_retry(&tide_moves, seq));
	rcu_read_unlock();
	return object;
}

/* ------------------------------------------------------------------ */
/* entering and leaving						       */
/* ------------------------------------------------------------------ */

static void tide_table_add(struct tide_table *table, struct tide_object *object)
{
	hlist_add_head_rcu(&object->by_id, tide_bucket_by_id(table, object->id));
	hlist_add_head_rcu(&object->by_key,
			   tide_bucket(table, object->key));
}

/* More objects than buckets are too many, less than an eighth too few. */
static bool tide_table_fits(const struct tide_table *table)
{
	unsigned long size = 1UL << table->bits, objects = tide_catalog_objects();

	return (objects <= size || table->bits == TIDE_TABLE_MOST) &&
	       (objects >= size / 8 || table->bits == TIDE_TABLE_LEAST);
}

static void tide_table_refit(struct tide_table *table)
{
	if (unlikely(!tide_table_fits(table)) && !tide_broken(GROWTH))
		queue_work(tide_catalog_queue, &tide_table_work);
}

/**
 * tide_table_insert() - make an object known, unless it is already
 * @object: filled in, not known
 * @is: whether another one is the same
 * @what: its second argument
 *
 * Context: any; allocates nothing.
 * Return: NULL, or the one that is known, with a reference taken.
 */
struct tide_object *tide_table_insert(struct tide_object *object, tide_object_is *is,
				      const void *what)
{
	struct tide_table *table;
	struct tide_object *other;
	unsigned long flags;

	spin_lock_irqsave(&tide_objects_lock, flags);
	other = tide_table_find(object->key, is, what);
	if (!other) {
		table = tide_table_newest();
		tide_table_add(table, object);
		WRITE_ONCE(tide_object_count, tide_object_count + 1);
		tide_table_refit(table);
	}
	spin_unlock_irqrestore(&tide_objects_lock, flags);
	return other;
}

/* A dead one. */
static void tide_table_remove(struct tide_object *object)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_objects_lock, flags);
	hlist_del_rcu(&object->by_key);
	hlist_del_rcu(&object->by_id);
	WRITE_ONCE(tide_object_count, tide_object_count - 1);
	tide_table_refit(tide_table_newest());
	spin_unlock_irqrestore(&tide_objects_lock, flags);
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

/* ------------------------------------------------------------------ */
/* growing and shrinking					       */
/* ------------------------------------------------------------------ */

static unsigned int tide_bucket_move(struct tide_table *from, struct tide_table *to,
				     unsigned long at)
{
	struct tide_object *object;
	struct hlist_node *next;
	unsigned int n = 0;

	hlist_for_each_entry_safe(object, next, &from->by_key[at], by_key) {
		hlist_del_rcu(&object->by_key);
		hlist_add_head_rcu(&object->by_key, tide_bucket(to, object->key));
		n++;
	}
	hlist_for_each_entry_safe(object, next, &from->by_id[at], by_id) {
		hlist_del_rcu(&object->by_id);
		hlist_add_head_rcu(&object->by_id, tide_bucket_by_id(to, object->id));
		n++;
	}
	return n;
}

/* Moves a few objects; returns the bucket to go on with. */
static unsigned long tide_table_move(struct tide_table *from, struct tide_table *to,
				     unsigned long at)
{
	unsigned long end = min(at + TIDE_MOVES, 1UL << from->bits);
	unsigned int n = 0;

	spin_lock_irq(&tide_objects_lock);
	write_seqcount_begin(&tide_moves);
	while (at < end && n < TIDE_MOVES)
		n += tide_bucket_move(from, to, at++);
	write_seqcount_end(&tide_moves);
	spin_unlock_irq(&tide_objects_lock);
	return at;
}

/* Sets both pointers; lookups see them change together. */
static void tide_table_set(struct tide_table *table, struct tide_table *next)
{
	spin_lock_irq(&tide_objects_lock);
	write_seqcount_begin(&tide_moves);
	rcu_assign_pointer(tide_table, table);
	rcu_assign_pointer(tide_table_next, next);
	write_seqcount_end(&tide_moves);
	spin_unlock_irq(&tide_objects_lock);
}

/* Moves all objects; returns the table that is of no use any more. */
static struct tide_table *tide_table_replace(struct tide_table *next)
{
	struct tide_table *table;
	unsigned long at = 0;

	mutex_lock(&tide_table_mutex);
	table = tide_table_now();
	tide_table_set(table, next);
	while (at < 1UL << table->bits) {
		at = tide_table_move(table, next, at);
		cond_resched();
	}
	tide_table_set(next, NULL);
	mutex_unlock(&tide_table_mutex);
	synchronize_rcu();
	return table;
}

/* Nobody else sets the table. Without memory it stays until the next object comes or goes. */
static void tide_table_resize(struct work_struct *work)
{
	unsigned int bits = clamp_t(unsigned int, fls(tide_catalog_objects()),
				    TIDE_TABLE_LEAST, TIDE_TABLE_MOST);
	struct tide_table *next;

	if (tide_table_fits(rcu_dereference_protected(tide_table, true)))
		return;		/* asked for while it was moved */
	next = tide_table_alloc(bits);
	if (next)
		kvfree(tide_table_replace(next));
}

/* ------------------------------------------------------------------ */
/* all of them							       */
/* ------------------------------------------------------------------ */

static struct tide_object *tide_bucket_next(struct hlist_head *bucket,
					    const void *group, unsigned int pass)
{
	struct tide_object *object;

	if (hlist_empty(bucket))	/* an object that comes now need not be seen */
		return NULL;
	spin_lock_irq(&tide_objects_lock);
	hlist_for_each_entry(object, bucket, by_key) {
		if (object->pass != pass && (!group || object->group == group) &&
		    refcount_inc_not_zero(&object->refs)) {
			object->pass = pass;
			spin_unlock_irq(&tide_objects_lock);
			return object;
		}
	}
	spin_unlock_irq(&tide_objects_lock);
	return NULL;
}

/**
 * tide_table_for_each() - call a function for every object, or for those of a group
 * @group: what they end with, or NULL
 * @fn: may sleep, may kill the object
 * @arg: its second argument
 *
 * Every object that is known throughout is visited, whatever comes and goes, and so is
 * one that dies until nothing of it is left.
 *
 * Context: process.
 */
void tide_table_for_each(const void *group,
			 void (*fn)(struct tide_object *object, void *arg), void *arg)
{
	static unsigned int pass;
	struct tide_table *table;
	struct tide_object *object;
	unsigned long i;

	mutex_lock(&tide_table_mutex);
	pass++;
	table = tide_table_now();
	for (i = 0; i < 1UL << table->bits; i++) {
		while ((object = tide_bucket_next(&table->by_key[i], group, pass))) {
			fn(object, arg);
			tide_object_put(object);
		}
		cond_resched();
	}
	mutex_unlock(&tide_table_mutex);
}

/* A bucket's object that has pages and was not used since it was last asked. */
static struct tide_object *tide_bucket_cold(struct hlist_head *bucket)
{
	struct tide_object *object;

	hlist_for_each_entry(object, bucket, by_key) {
		if (xa_empty(&object->pages))
			continue;
		if (READ_ONCE(object->used))
			WRITE_ONCE(object->used, false);
		else if (refcount_inc_not_zero(&object->refs))
			return object;
	}
	return NULL;
}

/* Looks at some buckets, from the hand of a clock on. */
static struct tide_object *tide_table_turn(unsigned long *left)
{
	static unsigned long hand;
	struct tide_table *table = tide_table_now();
	struct tide_object *object = NULL;
	unsigned int n;

	*left = min(*left, 2UL << table->bits);
	for (n = 0; !object && *left && n < TIDE_HAND_BUCKETS; n++) {
		hand &= (1UL << table->bits) - 1;
		object = tide_bucket_cold(&table->by_key[hand]);
		if (!object) {
			hand++;
			--*left;
		}
	}
	return object;
}

/**
 * tide_table_cold() - an object that has pages and was not used of late
 *
 * Goes on where it stopped, twice round at most.
 *
 * Context: any.
 * Return: the object with a reference taken, or NULL.
 */
struct tide_object *tide_table_cold(void)
{
	unsigned long left = ULONG_MAX, flags;
	struct tide_object *object;

	do {
		spin_lock_irqsave(&tide_objects_lock, flags);
		object = tide_table_turn(&left);
		spin_unlock_irqrestore(&tide_objects_lock, flags);
	} while (!object && left);
	return object;
}
