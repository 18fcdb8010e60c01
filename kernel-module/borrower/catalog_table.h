/* SPDX-License-Identifier: GPL-2.0-only */
/* The catalog's objects, by what their front ends know of them and by number: catalog_table.c. */
#ifndef TIDE_CATALOG_TABLE_H
#define TIDE_CATALOG_TABLE_H

#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/seqlock.h>
#include <linux/types.h>

#include "borrower/object.h"

struct workqueue_struct;

struct tide_table {
	unsigned int bits;
	struct hlist_head *by_id;
	struct hlist_head by_key[];
};

extern struct workqueue_struct *tide_catalog_queue;

extern struct tide_table __rcu *tide_table;
extern struct tide_table __rcu *tide_table_next;	/* what it is moved to */
extern seqcount_spinlock_t tide_moves;
extern unsigned int tide_object_count;

static inline unsigned int tide_catalog_objects(void)
{
	return READ_ONCE(tide_object_count);
}

/* Whether an object is what a front end looks for. */
typedef bool tide_object_is(const struct tide_object *object, const void *what);

static __always_inline struct tide_object *
tide_table_search(const struct tide_table *table, u64 key, tide_object_is *is, const void *what)
{
	struct tide_object *object;

	if (!table)
		return NULL;
	hlist_for_each_entry_rcu(object, &table->by_key[hash_64(key, table->bits)], by_key)
		if (object->key == key && is(object, what) && tide_object_lives(object))
			return object;
	return NULL;
}

/**
 * tide_table_peek() - the object that a front end looks for, without a reference
 * @key: the object's
 * @is: which of the objects with this key it is; known when this is compiled, so
 *	that no page that comes or goes costs a call through a pointer
 * @what: its second argument
 *
 * Writes to no line that another processor may have.
 *
 * Context: any, in an RCU read section, which keeps what is returned.
 * Return: the object, or NULL.
 */
static __always_inline struct tide_object *
tide_table_peek(u64 key, tide_object_is *is, const void *what)
{
	struct tide_object *object;
	unsigned int seq;

	do {
		seq = read_seqcount_begin(&tide_moves);
		object = tide_table_search(rcu_dereference(tide_table), key, is, what) ?:
			 tide_table_search(rcu_dereference(tide_table_next), key, is, what);
	} while (!object && read_seqcount_retry(&tide_moves, seq));
	return object;
}

/**
 * tide_table_find() - the object that a front end looks for
 * @key: as in tide_table_peek()
 * @is: likewise
 * @what: likewise
 *
 * Context: any.
 * Return: the object with a reference taken, or NULL.
 */
static __always_inline struct tide_object *
tide_table_find(u64 key, tide_object_is *is, const void *what)
{
	struct tide_object *object;

	rcu_read_lock();
	object = tide_table_peek(key, is, what);
	if (object && !tide_object_get(object))
		object = NULL;
	rcu_read_unlock();
	return object;
}

int tide_table_init(void);
void tide_table_exit(void);
struct tide_object *tide_table_find_id(u64 id);
struct tide_object *tide_table_insert(struct tide_object *object, tide_object_is *is,
				      const void *what);
void tide_object_forget(struct tide_object *object);
void tide_object_put(struct tide_object *object);
void tide_table_for_each(const void *group,
			 void (*fn)(struct tide_object *object, void *arg), void *arg);
struct tide_object *tide_table_cold(void);

#endif /* TIDE_CATALOG_TABLE_H */
