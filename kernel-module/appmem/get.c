// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gets of values (utmem). Nobody keeps writers away: a page that does not come is looked
 * for again if the key has got another one meanwhile.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "appmem/front.h"
#include "appmem/get.h"
#include "appmem/kept.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "base/broken.h"

#define TIDE_GET_TRIES		4	/* to read what is put anew all the time */

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
