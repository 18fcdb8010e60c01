// SPDX-License-Identifier: GPL-2.0-only
/*
 * Values by key (utmem's put and get). A value is in pages of its own or shares one with
 * others; the key says where. Whatever is put anew lies elsewhere, so who reads need not
 * keep writers away: a page that does not come is looked for again if the key has got
 * another one meanwhile.
 */
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "appmem/front.h"
#include "appmem/kept.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "base/broken.h"
#include "borrower/catalog_pages.h"
#include "borrower/peer.h"

#define TIDE_SWEEP		8	/* values and pages looked at with each put */
#define TIDE_SWEEP_FULL		4096	/* and with one for which there is no room */
#define TIDE_GET_TRIES		4	/* to read what is put anew all the time */

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

/* The value of a key, or NULL; expired or not. */
static struct tide_value *tide_value_at(struct tide_app_pool *pool, const struct tide_key *key)
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

/* What it costs, here and elsewhere, beside a page that it shares. */
static size_t tide_value_bytes(const struct tide_value *value)
{
	return kmalloc_size_roundup(struct_size(value, key, value->key_size)) +
	       tide_account_pages(tide_value_pages(value));
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
					    const struct tide_key *key, size_t size,
					    u64 expires, int *err)
{
	struct tide_value *value;

	value = kzalloc(struct_size(value, key, key->size), GFP_KERNEL_ACCOUNT);
	*err = value ? 0 : -ENOMEM;
	if (!value)
		return NULL;
	value->expires = expires;
	value->size = size;
	value->key_size = key->size;
	memcpy(value->key, key->bytes, key->size);
	*err = tide_account_charge(&pool->account, tide_value_bytes(value));
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
	tide_account_uncharge(&pool->account, tide_value_bytes(value));
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

/* Has it lost one of a value's pages? */
static bool tide_value_is_lost(struct tide_app_pool *pool, const struct tide_value *value)
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

/* The value of a key, or NULL if it has none, or none any more. */
static struct tide_value *tide_value_find(struct tide_app_pool *pool, const struct tide_key *key)
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
			    const void __user *from)
{
	if (pool->spill)
		return tide_kept_write(pool, value->index, &value->spilled, from,
				       value->size);
	return tide_app_pages_write(pool->object, value->index, from, value->size);
}

static int tide_value_put_pages(struct tide_app_pool *pool, struct tide_value *value,
				const void __user *from)
{
	int err;

	if (mutex_lock_killable(&pool->lock))
		return -EINTR;
	value->index = pool->next_index;
	pool->next_index += tide_value_pages(value);
	mutex_unlock(&pool->lock);
	err = tide_value_write(pool, value, from);
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

static int tide_value_put_shared(struct tide_app_pool *pool, struct tide_value *value,
				 const void __user *from)
{
	void *data = memdup_user(from, value->size);
	int err;

	if (IS_ERR(data))
		return PTR_ERR(data);
	do {
		err = tide_value_try_share(pool, value, data);
	} while (err == -ENOBUFS && !(err = tide_app_buffer_await()));
	kfree(data);
	return err;
}

static int tide_value_try_put(struct tide_app_pool *pool, const struct tide_key *key,
			      const void __user *from, size_t size, u64 expires)
{
	struct tide_value *value;
	int err;

	value = tide_value_create(pool, key, size, expires, &err);
	if (!value)
		return err;
	err = tide_size_is_small(size) ? tide_value_put_shared(pool, value, from) :
					 tide_value_put_pages(pool, value, from);
	if (err) {
		tide_account_uncharge(&pool->account, tide_value_bytes(value));
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
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 * @from: the value
 * @size: of it in bytes, TIDEPOOL_VALUE_MAX at most
 * @expire_ms: milliseconds until it stands for nothing, or 0
 *
 * Context: process; waits for buffers, which is for lenders, for the program's pages, and
 * in a kept pool for the file system.
 * Return: 0, or a negative errno when the key stands for what it did before: -EFAULT,
 * -ENOMEM, -EDQUOT, -EINTR, -ENOTCONN when no lender takes pages, or -EAGAIN when they are
 * too slow; in a kept pool, which needs none, see tide_spill_keep() instead.
 */
int tide_value_put(struct tide_app_pool *pool, const struct tide_key *key,
		   const void __user *from, size_t size, u64 expire_ms)
{
	u64 expires = tide_expires(expire_ms);
	int err;

	if (!pool->spill && !tide_lenders_take_puts(true))
		return -ENOTCONN;
	err = tide_value_try_put(pool, key, from, size, expires);
	if ((err == -EDQUOT || err == -ENOSPC) && tide_value_room(pool))
		err = tide_value_try_put(pool, key, from, size, expires);
	return err;
}

/* ------------------------------------------------------------------ */
/* get								       */
/* ------------------------------------------------------------------ */

/**
 * struct tide_found - where a value was when a key was looked up
 * @index: of its first page
 * @spilled: where that is in the pool's spill file
 * @offset: in the page
 * @size: in bytes
 * @data: its bytes, if they were in memory, to be freed
 * @near: its pages, if they were, to be freed likewise
 * @often: if not, they are worth to be there from now on
 */
struct tide_found {
	u64 index;
	struct tide_spilled spilled;
	u32 offset, size;
	void *data;
	struct page **near;
	bool often;
};

static int tide_found_copy(struct tide_found *found, const struct tide_value *value)
{
	found->data = kmalloc(value->size, GFP_KERNEL_ACCOUNT);
	if (!found->data)
		return -ENOMEM;
	memcpy_from_page(found->data, value->shared->page, value->offset, value->size);
	return 0;
}

static unsigned int tide_found_pages(const struct tide_found *found)
{
	return DIV_ROUND_UP(found->offset + found->size, PAGE_SIZE);
}

/* Its pages, if it is read so often that they are here. */
static void tide_found_near(struct tide_app_pool *pool, struct tide_value *value,
			    struct tide_found *found)
{
	unsigned int count = tide_found_pages(found);

	if (pool->spill || !count)
		return;
	found->often = tide_front_seen(&value->seen, count);
	if (!found->often)
		return;
	found->near = kcalloc(count, sizeof(*found->near), GFP_KERNEL_ACCOUNT);
	if (found->near && tide_front_get(&pool->front, found->index, found->near, count)) {
		pool->stats.local++;
		return;
	}
	kfree(found->near);
	found->near = NULL;
}

/* Where a key's value is, unless it is larger than @room. */
static int tide_value_look(struct tide_app_pool *pool, const struct tide_key *key, size_t room,
			   struct tide_found *found)
{
	struct tide_value *value;
	int err = 0;

	*found = (struct tide_found) { };
	if (mutex_lock_killable(&pool->lock))
		return -EINTR;
	value = tide_value_find(pool, key);
	if (!value) {
		pool->stats.misses++;
		err = -ENOENT;
	} else {
		found->index = value->index;
		found->spilled = value->shared ? value->shared->spilled : value->spilled;
		found->offset = value->offset;
		found->size = value->size;
		if (value->size > room)
			err = -EMSGSIZE;
		else if (value->shared && value->shared->page)
			err = tide_found_copy(found, value);
		else
			tide_found_near(pool, value, found);
	}
	mutex_unlock(&pool->lock);
	return err;
}

static bool tide_value_is_found(const struct tide_value *value, const struct tide_found *found)
{
	return value->index == found->index && value->offset == found->offset;
}

/* Its room in the spill file may be another value's, which is what was read perhaps. */
static bool tide_found_is_stale(struct tide_app_pool *pool, const struct tide_key *key,
				const struct tide_found *found)
{
	struct tide_value *value;
	bool stale;

	if (!pool->spill || tide_broken(APP_STALE))
		return false;
	mutex_lock(&pool->lock);
	value = tide_value_at(pool, key);
	stale = !value || !tide_value_is_found(value, found);
	mutex_unlock(&pool->lock);
	return stale;
}

/* Some page did not come: -EAGAIN if the key stands for something else meanwhile. */
static int tide_value_missed(struct tide_app_pool *pool, const struct tide_key *key,
			     const struct tide_found *found)
{
	struct tide_value *value;
	int err = -ENOENT;

	mutex_lock(&pool->lock);
	value = tide_value_find(pool, key);
	if (value && !tide_value_is_found(value, found)) {
		err = -EAGAIN;
	} else {
		pool->stats.misses++;
		pool->stats.lost += !!value;
		if (value && tide_value_is_lost(pool, value))
			tide_value_remove(pool, value);
	}
	mutex_unlock(&pool->lock);
	return err;
}

static int tide_pages_to_user(struct page **pages, const struct tide_found *found,
			      void __user *to)
{
	unsigned int done = 0, i = 0, offset = found->offset;

	while (done < found->size) {
		unsigned int part = min_t(unsigned int, found->size - done, PAGE_SIZE - offset);
		const void *from = kmap_local_page(pages[i++]);
		bool failed = copy_to_user(to + done, from + offset, part);

		kunmap_local(from);
		if (failed)
			return -EFAULT;
		done += part;
		offset = 0;
	}
	return 0;
}

static int tide_found_read(struct tide_app_pool *pool, const struct tide_key *key,
			   const struct tide_found *found, void __user *to)
{
	unsigned int count = tide_found_pages(found);
	struct page **pages;
	bool stale;
	int err;

	err = tide_pool_read(pool, found->index, &found->spilled, count, &pages);
	if (err && err != -EIO)
		return err;
	stale = tide_found_is_stale(pool, key, found);
	if (err)
		return stale ? -EAGAIN : err;
	if (found->often)
		tide_front_add(&pool->front, found->index, pages, count);
	err = stale ? -EAGAIN : tide_pages_to_user(pages, found, to);
	tide_app_pages_free(pages, count);
	return err;
}

static int tide_found_get(struct tide_app_pool *pool, const struct tide_key *key,
			  struct tide_found *found, void __user *to)
{
	int err;

	if (found->data) {
		err = copy_to_user(to, found->data, found->size) ? -EFAULT : 0;
		kfree(found->data);
		return err;
	}
	if (found->near) {
		err = tide_pages_to_user(found->near, found, to);
		tide_app_pages_free(found->near, tide_found_pages(found));
		return err;
	}
	if (!found->size)
		return 0;
	err = tide_found_read(pool, key, found, to);
	return err == -ENOENT ? tide_value_missed(pool, key, found) : err;
}

/* What has not been counted yet: the value was got, or was another one time after time. */
static void tide_value_got(struct tide_app_pool *pool, bool hit)
{
	mutex_lock(&pool->lock);
	pool->stats.hits += hit;
	pool->stats.misses += !hit;
	mutex_unlock(&pool->lock);
}

/* What is put anew all the time is nothing at last; but not where nothing is lost. */
static bool tide_get_goes_on(const struct tide_app_pool *pool, int tries)
{
	return pool->spill ? !signal_pending(current) : tries < TIDE_GET_TRIES;
}

static int tide_value_try_get(struct tide_app_pool *pool, const struct tide_key *key,
			      void __user *to, u32 *size)
{
	struct tide_found found;
	int err = tide_value_look(pool, key, *size, &found);

	*size = found.size;
	return err ?: tide_found_get(pool, key, &found, to);
}

/**
 * tide_value_get() - what a key stands for
 * @pool: the pool
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 * @to: where it goes
 * @size: of that in bytes; set to the value's, if there is one
 *
 * Context: process; waits for lenders, no longer than the deadline of a get, and in a
 * kept pool for the disk.
 * Return: 0, or a negative errno: -ENOENT when it stands for nothing, or no lender gave
 * it back, -EMSGSIZE when it is larger, -EFAULT, -ENOMEM or -EINTR; in a kept pool, where
 * a value needs no lender, also see tide_spill_read().
 */
int tide_value_get(struct tide_app_pool *pool, const struct tide_key *key, void __user *to,
		   u32 *size)
{
	u32 room = *size;
	int err, tries = 0;

	do {
		*size = room;
		err = tide_value_try_get(pool, key, to, size);
	} while (err == -EAGAIN && tide_get_goes_on(pool, ++tries));
	if (err == -EAGAIN && pool->spill)
		return -EINTR;
	if (!err || err == -EAGAIN)
		tide_value_got(pool, !err);
	return err == -EAGAIN ? -ENOENT : err;
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
