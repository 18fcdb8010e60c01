// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small values share pages (utmem names that as work to be done). They are added to one
 * page that is in memory, which goes to a lender when the next value does not fit; in a
 * kept pool to the spill file, too. What is deleted leaves a hole there, see holes.c.
 *
 * A file system may take its time: the page of a kept pool is written without the pool's
 * lock. Until that is done its values are got from memory, and nobody adds one anywhere.
 */
#include <linux/highmem.h>
#include <linux/slab.h>

#include "appmem/front.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/shared.h"
#include "appmem/value.h"
#include "borrower/catalog_pages.h"
#include "borrower/object.h"

static struct tide_cost tide_shared_cost(void)
{
	return tide_cost(kmalloc_size_roundup(sizeof(struct tide_shared)), 1);
}

static void tide_shared_free(struct tide_app_pool *pool, struct tide_shared *shared)
{
	if (shared->page)
		__free_page(shared->page);
	if (shared->spilled.at)
		tide_spill_give_back(pool->spill, shared->spilled.at, 1);
	kfree(shared);
	tide_account_uncharge(&pool->account, tide_shared_cost());
}

/* While a pool without room moves values it is beyond it, by a page. */
static int tide_shared_charge(struct tide_app_pool *pool, bool moves)
{
	return moves ? tide_account_charge_beyond(&pool->account, tide_shared_cost()) :
		       tide_account_charge(&pool->account, tide_shared_cost(),
					   tide_object_bytes(pool->object));
}

/* Where it will be in the spill file is taken now: closing it never lacks room. */
static int tide_shared_fill(struct tide_app_pool *pool, struct tide_shared *shared, bool moves)
{
	shared->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!shared->page)
		return -ENOMEM;
	if (pool->spill)
		shared->spilled.at = tide_spill_take(pool->spill, 1, moves);
	return pool->spill && !shared->spilled.at ? -ENOSPC : 0;
}

static struct tide_shared *tide_shared_create(struct tide_app_pool *pool, bool moves, int *err)
{
	struct tide_shared *shared;

	*err = tide_shared_charge(pool, moves);
	if (*err)
		return NULL;
	shared = kzalloc(sizeof(*shared), GFP_KERNEL_ACCOUNT);
	if (!shared) {
		tide_account_uncharge(&pool->account, tide_shared_cost());
		*err = -ENOMEM;
		return NULL;
	}
	*err = tide_shared_fill(pool, shared, moves);
	if (*err) {
		tide_shared_free(pool, shared);
		return NULL;
	}
	INIT_LIST_HEAD(&shared->list);
	INIT_LIST_HEAD(&shared->values);
	shared->index = pool->next_index++;
	return shared;
}

/**
 * tide_shared_drop() - the end of a page that a lender has
 * @pool: its lock is held
 * @shared: without values, not held
 */
void tide_shared_drop(struct tide_app_pool *pool, struct tide_shared *shared)
{
	list_del(&shared->list);
	pool->filled -= shared->used;
	tide_front_drop(&pool->front, shared->index, 1);
	if (pool->object)
		tide_object_drop(pool->object, shared->index, shared->index);
	tide_shared_free(pool, shared);
}

/* The open page is elsewhere from now on. */
static void tide_shared_close(struct tide_app_pool *pool)
{
	struct tide_shared *shared = pool->open;

	__free_page(shared->page);
	shared->page = NULL;
	list_add_tail(&shared->list, &pool->shared);
	pool->filled += shared->used;
	pool->live += shared->live;
	pool->open = NULL;
	if (!shared->live)
		tide_shared_drop(pool, shared);
}

/* It goes out; in a kept pool the caller has to write it, without the lock. */
static int tide_shared_send(struct tide_app_pool *pool)
{
	struct tide_shared *shared = pool->open;
	int err;

	if (pool->spill) {
		shared->full = true;
		return -EBUSY;
	}
	err = tide_app_page_try_put(pool->object, shared->index, shared->page);
	if (!err)
		tide_shared_close(pool);
	return err;
}

/* Has the open page no room for a value? */
static bool tide_shared_is_full(const struct tide_app_pool *pool, size_t size)
{
	return pool->open && (pool->open->full || pool->open->used + size > PAGE_SIZE);
}

/**
 * tide_shared_add() - add a small value to the page that is open
 * @pool: its lock is held
 * @value: of 1 to TIDE_SMALL_MAX bytes, in no page
 * @data: its bytes
 * @moves: the page that it was in goes then
 *
 * Context: process; waits neither for the network nor for a file system.
 * Return: 0, -ENOBUFS when that is worth another try, -ENOTCONN, -EDQUOT, -ENOMEM, in a
 * kept pool -ENOSPC, or -EBUSY: tide_shared_write() comes first.
 */
int tide_shared_add(struct tide_app_pool *pool, struct tide_value *value, const void *data,
		    bool moves)
{
	struct tide_shared *shared;
	int err = 0;

	if (tide_shared_is_full(pool, value->size))
		err = tide_shared_send(pool);
	if (err)
		return err;
	if (!pool->open)
		pool->open = tide_shared_create(pool, moves, &err);
	shared = pool->open;
	if (!shared)
		return err;
	memcpy_to_page(shared->page, shared->used, data, value->size);
	value->shared = shared;
	value->index = shared->index;
	value->offset = shared->used;
	list_add_tail(&value->in_shared, &shared->values);
	shared->used += value->size;
	shared->live += value->size;
	return 0;
}

/* The page that has to be written, or NULL; it is the open one as long as it is not. */
static struct tide_shared *tide_shared_to_write(struct tide_app_pool *pool)
{
	struct tide_shared *shared;

	mutex_lock(&pool->lock);
	shared = pool->open && pool->open->full ? pool->open : NULL;
	mutex_unlock(&pool->lock);
	return shared;
}

/* With @writing held. */
static int tide_shared_spill(struct tide_app_pool *pool, struct tide_shared *shared)
{
	struct tide_spilled spilled = shared->spilled;
	int err = tide_spill_write(pool->spill, &spilled, &shared->page, 1);

	if (err)
		return err;
	tide_app_page_try_put(pool->object, shared->index, shared->page);
	mutex_lock(&pool->lock);
	shared->spilled = spilled;
	tide_shared_close(pool);
	mutex_unlock(&pool->lock);
	return 0;
}

/**
 * tide_shared_write() - write the full page of a kept pool to its spill file
 * @pool: its lock is not held
 *
 * Context: process; waits for the file system, and for others who wait for it.
 * Return: 0 when another value can be added, -EINTR, or see tide_spill_write().
 */
int tide_shared_write(struct tide_app_pool *pool)
{
	struct tide_shared *shared;
	int err = 0;

	if (mutex_lock_interruptible(&pool->writing))
		return -EINTR;
	shared = tide_shared_to_write(pool);
	if (shared)
		err = tide_shared_spill(pool, shared);
	mutex_unlock(&pool->writing);
	return err;
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
		if (!shared->live && !shared->full)
			shared->used = 0;	/* no lender has seen it */
		return;
	}
	pool->live -= value->size;
	if (!shared->live && !shared->held)
		tide_shared_drop(pool, shared);
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
