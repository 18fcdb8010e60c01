// SPDX-License-Identifier: GPL-2.0-only
/*
 * Values by key, and how they are put (utmem). A value is in pages of its own or shares one
 * with others; the key says where. Whatever is put anew lies elsewhere: who reads need not
 * keep writers away.
 */
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "appmem/front.h"
#include "appmem/kept.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "base/broken.h"
#include "borrower/catalog_pages.h"
#include "borrower/object.h"
#include "borrower/peer.h"

#define TIDE_SWEEP		8	/* values and pages looked at with each put */
#define TIDE_SWEEP_FULL		4096	/* and with one for which there is no room */

/* ------------------------------------------------------------------ */
/* by key							       */
/* ------------------------------------------------------------------ */

/* As memcmp(), the shorter one first. */
static int tide_key_order(const struct tide_key *key, const struct tide_value *value)
{
	int order = memcmp(key->bytes, value->key, min_t(size_t, key->size, value->key_size));

	return order ?: (int)key->size - (int)value->key_size;
}

static struct tide_value *tide_value_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct tide_value, node);
}

/**
 * tide_value_at() - the value of a key, expired or not
 * @pool: its lock is held
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 *
 * Return: it, or NULL.
 */
struct tide_value *tide_value_at(struct tide_app_pool *pool, const struct tide_key *key)
{
	struct rb_node *node = pool->values.rb_node;

	while (node) {
		struct tide_value *value = tide_value_of(node);
		int order = tide_key_order(key, value);

		if (!order)
			return value;
		node = order < 0 ? node->rb_left : node->rb_right;
	}
	return NULL;
}

/* The first value behind a key, there or not. */
static struct tide_value *tide_value_after(struct tide_app_pool *pool, const struct tide_key *key)
{
	struct rb_node *node = pool->values.rb_node;
	struct tide_value *found = NULL;

	while (node) {
		struct tide_value *value = tide_value_of(node);

		if (tide_key_order(key, value) < 0) {
			found = value;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

static void tide_value_insert(struct tide_app_pool *pool, struct tide_value *value)
{
	struct tide_key key = { .bytes = value->key, .size = value->key_size };
	struct rb_node **link = &pool->values.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = tide_key_order(&key, tide_value_of(parent)) < 0 ? &parent->rb_left :
									  &parent->rb_right;
	}
	rb_link_node(&value->node, parent, link);
	rb_insert_color(&value->node, &pool->values);
	pool->stats.values++;
	pool->stats.value_bytes += value->size;
}

/* ------------------------------------------------------------------ */
/* coming and going						       */
/* ------------------------------------------------------------------ */

static bool tide_size_is_small(size_t size)
{
	return size <= TIDE_SMALL_MAX;
}

/* Pages that are its own. */
static unsigned int tide_value_pages(const struct tide_value *value)
{
	return tide_size_is_small(value->size) ? 0 : DIV_ROUND_UP(value->size, PAGE_SIZE);
}

/* What it costs beside a page that it shares. */
static struct tide_cost tide_value_cost(const struct tide_value *value)
{
	return tide_cost(kmalloc_size_roundup(struct_size(value, key, value->key_size)),
			 tide_value_pages(value));
}

static u64 tide_expires(u64 expire_ms)
{
	u64 ns;

	if (!expire_ms)
		return 0;
	if (check_mul_overflow(expire_ms, (u64)NSEC_PER_MSEC, &ns) ||
	    check_add_overflow(ns, ktime_get_boottime_ns(), &ns))
		return U64_MAX;
	return ns;
}

static bool tide_value_expired(const struct tide_value *value)
{
	return value->expires && value->expires <= ktime_get_boottime_ns() &&
	       !tide_broken(APP_EXPIRE);
}

static struct tide_value *tide_value_create(struct tide_app_pool *pool,
					    const struct tide_put *put, int *err)
{
	const struct tide_key *key = put->key;
	struct tide_value *value;

	value = kzalloc(struct_size(value, key, key->size), GFP_KERNEL_ACCOUNT);
	*err = value ? 0 : -ENOMEM;
	if (!value)
		return NULL;
	value->expires = tide_expires(put->expire_ms);
	value->size = put->size;
	value->key_size = key->size;
	memcpy(value->key, key->bytes, key->size);
	*err = tide_account_charge(&pool->account, tide_value_cost(value),
				   tide_object_bytes(pool->object));
	if (!*err)
		return value;
	kfree(value);
	return NULL;
}

/* Its pages are of no use any more; without an object they went with that. */
static void tide_value_free(struct tide_app_pool *pool, struct tide_value *value)
{
	unsigned int pages = tide_value_pages(value);

	if (value->shared)
		tide_shared_remove(pool, value);
	if (pages && pool->object)
		tide_object_drop(pool->object, value->index, value->index + pages - 1);
	if (pages)
		tide_front_drop(&pool->front, value->index, pages);
	if (pages && value->spilled.at)
		tide_spill_give_back(pool->spill, value->spilled.at, pages);
	tide_account_uncharge(&pool->account, tide_value_cost(value));
	kfree(value);
}

/**
 * tide_value_remove() - a key stands for nothing any more
 * @pool: its lock is held
 * @value: freed
 */
void tide_value_remove(struct tide_app_pool *pool, struct tide_value *value)
{
	rb_erase(&value->node, &pool->values);
	pool->stats.values--;
	pool->stats.value_bytes -= value->size;
	tide_value_free(pool, value);
}

/**
 * tide_values_end() - the end of a pool's values
 * @pool: nobody uses it any more, and its object is gone
 */
void tide_values_end(struct tide_app_pool *pool)
{
	struct tide_value *value;

	mutex_lock(&pool->lock);
	while ((value = tide_value_of(rb_first(&pool->values)))) {
		tide_value_remove(pool, value);
		cond_resched();
	}
	tide_shared_end(pool);
	mutex_unlock(&pool->lock);
}

/* ------------------------------------------------------------------ */
/* those that nobody will get any more				       */
/* ------------------------------------------------------------------ */

/**
 * tide_value_is_lost() - has a pool lost one of a value's pages?
 * @pool: its lock is held
 * @value: one of its values
 *
 * Context: process; asks no lender.
 */
bool tide_value_is_lost(struct tide_app_pool *pool, const struct tide_value *value)
{
	unsigned int i, pages = tide_value_pages(value);

	if (pool->spill)
		return false;
	if (value->shared)
		return !value->shared->page && tide_app_page_is_gone(pool->object, value->index);
	for (i = 0; i < pages; i++)
		if (tide_app_page_is_gone(pool->object, value->index + i))
			return true;
	return false;
}

static bool tide_value_reap(struct tide_app_pool *pool, struct tide_value *value)
{
	if (tide_value_expired(value))
		pool->stats.expired++;
	else if (!tide_value_is_lost(pool, value))
		return false;
	tide_value_remove(pool, value);
	return true;
}

static struct tide_value *tide_value_first(struct tide_app_pool *pool)
{
	return tide_value_of(rb_first(&pool->values));
}

/* A value to begin with: the one behind that which was looked at last. */
static struct tide_value *tide_value_unswept(struct tide_app_pool *pool)
{
	struct tide_key swept = { .bytes = pool->swept, .size = pool->swept_size };

	return tide_value_after(pool, &swept);
}

/*
 * Looks at some values and their pages, at most at so many, at a value at least; goes on
 * where it was the last time, round and round. Returns whether one went.
 */
static bool tide_values_sweep(struct tide_app_pool *pool, int most)
{
	struct tide_value *value = tide_value_unswept(pool), *next;
	u64 left = pool->stats.values;	/* none is looked at twice */
	bool reaped = false;

	for (; left && most > 0; value = next, left--) {
		value = value ?: tide_value_first(pool);
		next = tide_value_of(rb_next(&value->node));
		pool->swept_size = value->key_size;
		memcpy(pool->swept, value->key, value->key_size);
		most -= 1 + tide_value_pages(value);
		reaped |= tide_value_reap(pool, value);
		cond_resched();
	}
	return reaped;
}

/* Its time is over: it goes. */
static bool tide_value_outlived(struct tide_app_pool *pool, struct tide_value *value)
{
	if (!tide_value_expired(value))
		return false;
	pool->stats.expired++;
	tide_value_remove(pool, value);
	return true;
}

/**
 * tide_value_find() - the value of a key
 * @pool: its lock is held
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 *
 * Return: it, or NULL if it has none, or none any more.
 */
struct tide_value *tide_value_find(struct tide_app_pool *pool, const struct tide_key *key)
{
	struct tide_value *value = tide_value_at(pool, key);

	return value && !tide_value_outlived(pool, value) ? value : NULL;
}

/* ------------------------------------------------------------------ */
/* put								       */
/* ------------------------------------------------------------------ */

/* The value is where it belongs: a key stands for it. Drops the lock's former value. */
static void tide_value_publish(struct tide_app_pool *pool, struct tide_value *value)
{
	struct tide_key key = { .bytes = value->key, .size = value->key_size };
	struct tide_value *former = tide_value_at(pool, &key);

	if (former) {
		value->seen = former->seen;
		tide_value_remove(pool, former);
	}
	tide_value_insert(pool, value);
	pool->stats.puts++;
	tide_values_sweep(pool, TIDE_SWEEP);
}

/* Lenders get its pages, in a kept pool the spill file, too. */
static int tide_value_write(struct tide_app_pool *pool, struct tide_value *value,
			    const struct tide_put *put)
{
	if (pool->spill)
		return tide_kept_write(pool, value->index, &value->spilled, put->from,
				       put->size);
	return tide_app_pages_write(pool->object, value->index, put->from, put->size,
				    put->waits);
}

static int tide_value_put_pages(struct tide_app_pool *pool, struct tide_value *value,
				const struct tide_put *put)
{
	int err;

	if (mutex_lock_killable(&pool->lock))
		return -EINTR;
	value->index = pool->next_index;
	pool->next_index += tide_value_pages(value);
	mutex_unlock(&pool->lock);
	err = tide_value_write(pool, value, put);
	if (err)
		return err;
	mutex_lock(&pool->lock);
	tide_value_publish(pool, value);
	mutex_unlock(&pool->lock);
	return 0;
}

static int tide_value_try_share(struct tide_app_pool *pool, struct tide_value *value,
				const void *data)
{
	int err = 0;

	if (mutex_lock_killable(&pool->lock))
		return -EINTR;
	if (value->size)
		err = tide_shared_add(pool, value, data, false);
	if (!err)
		tide_value_publish(pool, value);
	mutex_unlock(&pool->lock);
	return err;
}

/* What is worth waiting for before it is tried again; else the error. */
static int tide_value_share_await(struct tide_app_pool *pool, const struct tide_put *put, int err)
{
	if (err == -ENOBUFS)
		return put->waits ? tide_app_buffer_await() : -EAGAIN;
	return err == -EBUSY ? tide_shared_write(pool) : err;
}

static int tide_value_put_shared(struct tide_app_pool *pool, struct tide_value *value,
				 const struct tide_put *put)
{
	void *data = memdup_user(put->from, put->size);
	int err;

	if (IS_ERR(data))
		return PTR_ERR(data);
	do {
		err = tide_value_try_share(pool, value, data);
	} while (err && !(err = tide_value_share_await(pool, put, err)));
	kfree(data);
	return err;
}

static int tide_value_put_once(struct tide_app_pool *pool, const struct tide_put *put)
{
	struct tide_value *value;
	int err;

	value = tide_value_create(pool, put, &err);
	if (!value)
		return err;
	err = tide_size_is_small(put->size) ? tide_value_put_shared(pool, value, put) :
					      tide_value_put_pages(pool, value, put);
	if (err) {
		tide_account_uncharge(&pool->account, tide_value_cost(value));
		kfree(value);
	}
	return err;
}

/* A quota is full of values that are gone, perhaps: is it worth another try? */
static bool tide_value_room(struct tide_app_pool *pool)
{
	bool room;

	mutex_lock(&pool->lock);
	room = tide_values_sweep(pool, TIDE_SWEEP_FULL);
	mutex_unlock(&pool->lock);
	return room;
}

/**
 * tide_value_put() - a key stands for a value from now on
 * @pool: the pool
 * @put: which; in a kept pool it waits
 *
 * Context: process; waits for buffers, which is for lenders, for the program's pages, and
 * in a kept pool for the file system.
 * Return: 0, or a negative errno when the key stands for what it did before: -EFAULT,
 * -ENOMEM, -EDQUOT, -EINTR, -ENOTCONN when no lender takes pages, or -EAGAIN when they are
 * too slow, or it does not wait; in a kept pool, which needs none, see tide_spill_keep()
 * instead.
 */
int tide_value_put(struct tide_app_pool *pool, const struct tide_put *put)
{
	int err;

	if (!pool->spill && !tide_lenders_take_puts(true))
		return -ENOTCONN;
	err = tide_value_put_once(pool, put);
	if ((err == -EDQUOT || err == -ENOSPC) && tide_value_room(pool))
		err = tide_value_put_once(pool, put);
	return err;
}

/* ------------------------------------------------------------------ */
/* delete, exists, keys						       */
/* ------------------------------------------------------------------ */

/**
 * tide_value_delete() - a key stands for nothing from now on
 * @pool: the pool
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 *
 * Context: process.
 * Return: 0, or -ENOENT when it did so before.
 */
int tide_value_delete(struct tide_app_pool *pool, const struct tide_key *key)
{
	struct tide_value *value;

	mutex_lock(&pool->lock);
	value = tide_value_find(pool, key);
	if (value) {
		pool->stats.deletes++;
		tide_value_remove(pool, value);
	}
	mutex_unlock(&pool->lock);
	return value ? 0 : -ENOENT;
}

/**
 * tide_value_exists() - does a key stand for something, as far as is known?
 * @pool: the pool
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 * @size: set to the value's, in bytes, or to 0
 *
 * Context: process; asks no lender.
 * Return: 0 or -ENOENT.
 */
int tide_value_exists(struct tide_app_pool *pool, const struct tide_key *key, u32 *size)
{
	struct tide_value *value;

	mutex_lock(&pool->lock);
	value = tide_value_find(pool, key);
	if (value && tide_value_is_lost(pool, value)) {
		tide_value_remove(pool, value);
		value = NULL;
	}
	*size = value ? value->size : 0;
	mutex_unlock(&pool->lock);
	return value ? 0 : -ENOENT;
}

/**
 * tide_value_keys() - some keys, in their order
 * @pool: the pool
 * @after: behind which one; of no byte: from the beginning
 * @buffer: for keys, each behind its length, a byte
 * @size: of @buffer in bytes
 * @used: set to the bytes that were filled
 *
 * Context: process.
 * Return: how many keys.
 */
unsigned int tide_value_keys(struct tide_app_pool *pool, const struct tide_key *after,
			     void *buffer, unsigned int size, unsigned int *used)
{
	struct tide_value *value, *next;
	unsigned int count = 0;
	u8 *at = buffer;

	mutex_lock(&pool->lock);
	value = tide_value_after(pool, after);
	for (; value; value = next) {
		next = tide_value_of(rb_next(&value->node));
		cond_resched();
		if (tide_value_outlived(pool, value))
			continue;
		if (at + 1 + value->key_size > (u8 *)buffer + size)
			break;
		*at++ = value->key_size;
		memcpy(at, value->key, value->key_size);
		at += value->key_size;
		count++;
	}
	mutex_unlock(&pool->lock);
	*used = at - (u8 *)buffer;
	return count;
}
