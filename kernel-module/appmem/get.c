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

/* Where a key's value is, unless it is larger than @room; without a value nothing is found. */
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

/* Memory in which the value was. */
static void tide_found_free(struct tide_found *found)
{
	kfree(found->data);
	tide_app_pages_free(found->near, found->near ? tide_found_pages(found) : 0);
}

/* Is the value elsewhere, as far as it has any bytes? */
static bool tide_found_is_away(const struct tide_found *found)
{
	return found->size && !found->data && !found->near;
}

static int tide_want_read(struct tide_app_pool *pool, struct tide_want *want, ktime_t until)
{
	const struct tide_found *found = &want->found;
	unsigned int count = tide_found_pages(found);
	struct page **pages;
	bool stale;
	int err;

	err = tide_pool_await(pool, &found->spilled, count, &want->asked, until, &pages);
	if (err && err != -EIO)
		return err;
	stale = tide_found_is_stale(pool, &want->key, found);
	if (err)
		return stale ? -EAGAIN : err;
	if (found->often)
		tide_front_add(&pool->front, found->index, pages, count);
	err = stale ? -EAGAIN : tide_pages_to_user(pages, found, want->to);
	tide_app_pages_free(pages, count);
	return err;
}

static int tide_want_finish(struct tide_app_pool *pool, struct tide_want *want, ktime_t until)
{
	struct tide_found *found = &want->found;
	int err = want->err;

	if (err)
		return err;
	if (tide_found_is_away(found)) {
		err = tide_want_read(pool, want, until);
		return err == -ENOENT ? tide_value_missed(pool, &want->key, found) : err;
	}
	if (found->data)
		err = copy_to_user(want->to, found->data, found->size) ? -EFAULT : 0;
	else if (found->near)
		err = tide_pages_to_user(found->near, found, want->to);
	tide_found_free(found);
	return err;
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

/**
 * tide_want_begin() - look up what a key stands for, and ask for it where it is
 * @pool: the pool
 * @want: its key, to, room and waits are set
 *
 * Many can be begun before the first one is ended.
 *
 * Context: process; does not wait for lenders.
 */
void tide_want_begin(struct tide_app_pool *pool, struct tide_want *want)
{
	struct tide_found *found = &want->found;

	want->asked = (struct tide_asked) { };
	want->err = tide_value_look(pool, &want->key, want->room, found);
	if (!want->err && tide_found_is_away(found))
		want->err = tide_pool_ask(pool, found->index, &found->spilled,
					  tide_found_pages(found), &want->asked, want->waits);
}

/**
 * tide_want_pages() - how many pages one that was begun is waiting for
 * @want: it
 */
unsigned int tide_want_pages(const struct tide_want *want)
{
	return want->err || !tide_found_is_away(&want->found) ? 0 : tide_found_pages(&want->found);
}

/**
 * tide_want_drop() - what was begun is of no use
 * @want: it
 */
void tide_want_drop(struct tide_want *want)
{
	struct tide_asked *asked = &want->asked;

	if (want->err)
		return;
	if (asked->read && tide_app_pages_await(asked->read, 0, &asked->pages))
		return;
	tide_app_pages_free(asked->pages, tide_want_pages(want));
	tide_found_free(&want->found);
}

/**
 * tide_want_end() - have what a key stands for
 * @pool: the pool
 * @want: was begun; found.size is the value's if there is one
 * @until: when it is too late, in monotonic time; KTIME_MAX: never
 *
 * Context: process; waits for lenders, no longer than the deadline of a get, and in a
 * kept pool for the disk.
 * Return: 0, or a negative errno: -ENOENT when it stands for nothing, or no lender gave
 * it back, -EMSGSIZE when it is larger, -ETIME when it is too late, -EFAULT, -ENOMEM or
 * -EINTR; in a kept pool, where a value needs no lender, also see tide_spill_read().
 */
int tide_want_end(struct tide_app_pool *pool, struct tide_want *want, ktime_t until)
{
	int err, tries = 0;

	while ((err = tide_want_finish(pool, want, until)) == -EAGAIN &&
	       tide_get_goes_on(pool, ++tries))
		tide_want_begin(pool, want);
	if (err == -EAGAIN && pool->spill)
		return -EINTR;
	if (!err || err == -EAGAIN)
		tide_value_got(pool, !err);
	return err == -EAGAIN ? -ENOENT : err;
}
