// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holes in pages that small values share: when they are more than what is left, a page
 * of few values is read back, they are added anew, and it is dropped. Whoever puts a value
 * does so first, a few at a time: values are not put faster than holes are filled.
 */
#include <linux/highmem.h>

#include "appmem/holes.h"
#include "appmem/kept.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "base/broken.h"

#define TIDE_HOLES_LEAST	(16 * PAGE_SIZE)	/* bytes of holes that nobody minds */
#define TIDE_HOLES_LOOK		16	/* pages looked at for one with few values */
#define TIDE_HOLES_MOVERS	4	/* at a time, each beyond the quota by a page */

/* A page half of which is holes, of the oldest; those that were looked at become the youngest. */
static struct tide_shared *tide_holes_choose(struct tide_app_pool *pool)
{
	unsigned int looked;

	for (looked = 0; looked < TIDE_HOLES_LOOK; looked++) {
		struct tide_shared *shared;

		shared = list_first_entry_or_null(&pool->shared, struct tide_shared, list);
		if (!shared)
			return NULL;
		list_move_tail(&shared->list, &pool->shared);
		if (!shared->held && shared->live <= shared->used / 2)
			return shared;
	}
	return NULL;
}

/* With the pool's lock: are there too many, and too few who fill them? */
static bool tide_holes_are_many(const struct tide_app_pool *pool)
{
	return pool->movers < TIDE_HOLES_MOVERS &&
	       pool->filled > 2 * pool->live + TIDE_HOLES_LEAST && !tide_broken(APP_HOLES);
}

/**
 * tide_holes_wait() - would tide_holes_fill() have something to do?
 * @pool: its lock is not held
 *
 * Context: process.
 */
bool tide_holes_wait(struct tide_app_pool *pool)
{
	bool many;

	mutex_lock(&pool->lock);
	many = tide_holes_are_many(pool);
	mutex_unlock(&pool->lock);
	return many;
}

static struct tide_shared *tide_holes_hold(struct tide_app_pool *pool)
{
	struct tide_shared *shared = NULL;

	mutex_lock(&pool->lock);
	if (tide_holes_are_many(pool))
		shared = tide_holes_choose(pool);
	if (shared) {
		shared->held = true;
		pool->movers++;
	}
	mutex_unlock(&pool->lock);
	return shared;
}

/* Adds a value anew; on an error it stays where it is, and so do those behind it. */
static int tide_holes_move(struct tide_app_pool *pool, struct tide_value *value, const void *page)
{
	struct tide_shared *from = value->shared;
	struct tide_value old = *value;
	int err;

	list_del(&value->in_shared);
	err = tide_shared_add(pool, value, page + old.offset, true);
	if (err) {
		list_add(&value->in_shared, &from->values);
		return err;
	}
	from->live -= value->size;
	pool->live -= value->size;
	pool->stats.moved++;
	return 0;
}

static int tide_holes_move_some(struct tide_app_pool *pool, struct tide_shared *shared,
				struct page *page)
{
	const void *from = kmap_local_page(page);
	struct tide_value *value;
	int err = 0;

	do {
		value = list_first_entry_or_null(&shared->values, struct tide_value, in_shared);
		if (value)
			err = tide_holes_move(pool, value, from);
	} while (value && !err);
	kunmap_local(from);
	return err;
}

/* With the pool's lock, which is not held while a full page is written to the spill file. */
static void tide_holes_move_all(struct tide_app_pool *pool, struct tide_shared *shared,
				struct page *page)
{
	int err;

	while ((err = tide_holes_move_some(pool, shared, page)) == -EBUSY) {
		mutex_unlock(&pool->lock);
		err = tide_shared_write(pool);
		mutex_lock(&pool->lock);
		if (err)
			break;
	}
}

/* The page did not come: if it never will, its values are gone. */
static void tide_holes_lost(struct tide_app_pool *pool, struct tide_shared *shared)
{
	struct tide_value *value, *next;

	if (!tide_app_page_is_gone(pool->object, shared->index))
		return;
	list_for_each_entry_safe(value, next, &shared->values, in_shared)
		tide_value_remove(pool, value);
}

/**
 * tide_holes_fill() - make one page empty, if holes are more than what is left
 * @pool: its lock is not held
 *
 * Context: process; waits for a lender, in a kept pool for the disk.
 */
void tide_holes_fill(struct tide_app_pool *pool)
{
	struct tide_shared *shared = tide_holes_hold(pool);
	struct page **pages;
	int err;

	if (!shared)
		return;
	err = tide_pool_read(pool, shared->index, &shared->spilled, 1, &pages);
	mutex_lock(&pool->lock);
	if (!err)
		tide_holes_move_all(pool, shared, pages[0]);
	else if (err == -ENOENT)
		tide_holes_lost(pool, shared);
	shared->held = false;
	pool->movers--;
	if (!shared->live)
		tide_shared_drop(pool, shared);
	mutex_unlock(&pool->lock);
	if (!err)
		tide_app_pages_free(pages, 1);
}
