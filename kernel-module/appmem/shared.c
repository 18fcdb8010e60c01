// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small values share pages (utmem names that as work to be done). They are added to one
 * page that is in memory, which goes to a lender when the next value does not fit. What
 * is deleted leaves a hole there; when holes are more than what is left, a page of few
 * values is read back, they are added anew, and it is dropped.
 */
#include <linux/highmem.h>
#include <linux/slab.h>

#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "base/broken.h"
#include "borrower/catalog_pages.h"

#define TIDE_HOLES_LEAST	(16 * PAGE_SIZE)	/* bytes of holes that nobody minds */
#define TIDE_HOLES_LOOK		16	/* pages looked at for one with few values */

static void tide_shared_free(struct tide_app_pool *pool, struct tide_shared *shared)
{
	if (shared->page)
		__free_page(shared->page);
	kfree(shared);
	tide_app_uncharge(pool, PAGE_SIZE);
}

static struct tide_shared *tide_shared_create(struct tide_app_pool *pool, int *err)
{
	struct tide_shared *shared;

	*err = tide_app_charge(pool, PAGE_SIZE);
	if (*err)
		return NULL;
	shared = kzalloc(sizeof(*shared), GFP_KERNEL_ACCOUNT);
	if (shared)
		shared->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!shared || !shared->page) {
		kfree(shared);
		tide_app_uncharge(pool, PAGE_SIZE);
		*err = -ENOMEM;
		return NULL;
	}
	INIT_LIST_HEAD(&shared->list);
	INIT_LIST_HEAD(&shared->values);
	shared->index = pool->next_index++;
	return shared;
}

/* The open page goes to a lender. */
static int tide_shared_close(struct tide_app_pool *pool)
{
	struct tide_shared *shared = pool->open;
	int err = tide_app_page_try_put(pool->object, shared->index, shared->page);

	if (err)
		return err;
	__free_page(shared->page);
	shared->page = NULL;
	list_add_tail(&shared->list, &pool->shared);
	pool->filled += shared->used;
	pool->live += shared->live;
	pool->open = NULL;
	return 0;
}

/**
 * tide_shared_add() - add a small value to the page that is open
 * @pool: its lock is held
 * @value: of 1 to TIDE_SMALL_MAX bytes, in no page
 * @data: its bytes
 *
 * Context: process; does not wait for the network.
 * Return: 0, -ENOBUFS when that is worth another try, -ENOTCONN, -EDQUOT or -ENOMEM.
 */
int tide_shared_add(struct tide_app_pool *pool, struct tide_value *value, const void *data)
{
	struct tide_shared *shared = pool->open;
	int err = 0;

	if (shared && shared->used + value->size > PAGE_SIZE) {
		err = tide_shared_close(pool);
		if (err)
			return err;
		shared = NULL;
	}
	if (!shared) {
		shared = tide_shared_create(pool, &err);
		if (!shared)
			return err;
		pool->open = shared;
	}
	memcpy_to_page(shared->page, shared->used, data, value->size);
	value->shared = shared;
	value->index = shared->index;
	value->offset = shared->used;
	list_add_tail(&value->in_shared, &shared->values);
	shared->used += value->size;
	shared->live += value->size;
	return 0;
}

static void tide_shared_drop(struct tide_app_pool *pool, struct tide_shared *shared)
{
	list_del(&shared->list);
	pool->filled -= shared->used;
	if (pool->object)
		tide_object_drop(pool->object, shared->index, shared->index);
	tide_shared_free(pool, shared);
}

/**
 * tide_shared_remove() - a small value is in no page any more
 * @pool: its lock is held
 * @value: that shares one
 */
void tide_shared_remove(struct tide_app_pool *pool, struct tide_value *value)
{
	struct tide_shared *shared = value->shared;

	list_del(&value->in_shared);
	value->shared = NULL;
	shared->live -= value->size;
	if (shared == pool->open) {
		if (!shared->live)
			shared->used = 0;	/* no lender has seen it */
		return;
	}
	pool->live -= value->size;
	if (!shared->live && !shared->held)
		tide_shared_drop(pool, shared);
}

/* ------------------------------------------------------------------ */
/* holes							       */
/* ------------------------------------------------------------------ */

/* A page half of which is holes, of the oldest; those that were looked at become the youngest. */
static struct tide_shared *tide_shared_choose(struct tide_app_pool *pool)
{
	unsigned int looked;

	for (looked = 0; looked < TIDE_HOLES_LOOK; looked++) {
		struct tide_shared *shared;

		shared = list_first_entry_or_null(&pool->shared, struct tide_shared, list);
		if (!shared)
			return NULL;
		list_move_tail(&shared->list, &pool->shared);
		if (shared->live <= shared->used / 2)
			return shared;
	}
	return NULL;
}

static struct tide_shared *tide_shared_hold(struct tide_app_pool *pool)
{
	struct tide_shared *shared = NULL;

	mutex_lock(&pool->lock);
	if (!pool->moving && pool->filled > 2 * pool->live + TIDE_HOLES_LEAST &&
	    !tide_broken(APP_HOLES))
		shared = tide_shared_choose(pool);
	if (shared) {
		shared->held = true;
		pool->moving = true;
	}
	mutex_unlock(&pool->lock);
	return shared;
}

/* Adds a value anew; false: it stays where it is, and so do those behind it. */
static bool tide_shared_move(struct tide_app_pool *pool, struct tide_value *value,
			     const void *page)
{
	struct tide_shared *from = value->shared;
	struct tide_value old = *value;

	list_del(&value->in_shared);
	if (tide_shared_add(pool, value, page + old.offset)) {
		list_add(&value->in_shared, &from->values);
		return false;
	}
	from->live -= value->size;
	pool->live -= value->size;
	pool->stats.moved++;
	return true;
}

static void tide_shared_move_all(struct tide_app_pool *pool, struct tide_shared *shared,
				 struct page *page)
{
	const void *from = kmap_local_page(page);

	while (!list_empty(&shared->values) &&
	       tide_shared_move(pool, list_first_entry(&shared->values, struct tide_value,
						       in_shared), from))
		;
	kunmap_local(from);
}

/* The page did not come: if it never will, its values are gone. */
static void tide_shared_lost(struct tide_app_pool *pool, struct tide_shared *shared)
{
	struct tide_value *value, *next;

	if (!tide_value_is_gone(pool, shared->index))
		return;
	list_for_each_entry_safe(value, next, &shared->values, in_shared)
		tide_value_remove(pool, value);
}

/**
 * tide_shared_compact() - make one page empty, if holes are more than what is left
 * @pool: its lock is not held
 *
 * Context: process; waits for a lender.
 */
void tide_shared_compact(struct tide_app_pool *pool)
{
	struct tide_shared *shared = tide_shared_hold(pool);
	struct page **pages;
	int err = -ENOMEM;

	if (!shared)
		return;
	pages = tide_app_pages_alloc(1);
	if (pages)
		err = tide_app_pages_read(pool->object, shared->index, pages, 1);
	mutex_lock(&pool->lock);
	if (!err)
		tide_shared_move_all(pool, shared, pages[0]);
	else if (err == -ENOENT)
		tide_shared_lost(pool, shared);
	shared->held = false;
	pool->moving = false;
	if (!shared->live)
		tide_shared_drop(pool, shared);
	mutex_unlock(&pool->lock);
	if (!err)
		tide_app_pages_free(pages, 1);
}

/**
 * tide_shared_end() - the page that is open goes, too
 * @pool: without values; nobody uses it any more
 */
void tide_shared_end(struct tide_app_pool *pool)
{
	if (pool->open)
		tide_shared_free(pool, pool->open);
	pool->open = NULL;
}
