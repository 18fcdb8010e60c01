// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers for pages on their way out. They are preallocated, for nothing is
 * allocated at eviction. Those that gets are served from are in outgoing.c.
 *
 * Their memory is the guest's again while no lender takes pages: none is
 * connected, or the latency breakers of all are open. One batch is kept.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/vmalloc.h>

#include "borrower/buffers.h"
#include "borrower/catalog_table.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"
#include "uapi/wire.h"

static unsigned int put_buffers;
module_param(put_buffers, uint, 0444);
MODULE_PARM_DESC(put_buffers, "pages preallocated for evicted pages on their way out (64 to 65536; 0, the default: by the memory)");

#define TIDE_BUFFERS_WAIT	(10 * HZ)	/* as a lender may be back soon */

static void tide_buffers_fit(struct work_struct *work);

static struct tide_buffer *tide_buffer_store;
static LIST_HEAD(tide_buffers_free);
static LIST_HEAD(tide_buffers_bare);		/* without a page */
static unsigned int tide_buffers_idle, tide_buffers_total;	/* with one */
static DEFINE_SPINLOCK(tide_buffers_lock);
static DECLARE_DELAYED_WORK(tide_buffers_work, tide_buffers_fit);
static unsigned int tide_buffers_users;
static DEFINE_MUTEX(tide_buffers_mutex);	/* the users' count */

/* ------------------------------------------------------------------ */
/* all of them							       */
/* ------------------------------------------------------------------ */

/*
 * 1/64 of memory, up to 64 MiB. In a guest of 192 MiB kswapd evicts 4 MiB in one
 * go, faster than they can be sent, so small guests have 8 MiB, but no more than
 * 1/16 of what they have.
 */
static unsigned int tide_buffers_default(void)
{
	unsigned long pages = totalram_pages();

	return clamp(pages / 64, min(2048UL, pages / 16), 16384UL);
}

/**
 * tide_buffers_init() - how many will there be?
 *
 * Return: 0, or -EINVAL when the module's parameter is out of range.
 */
int tide_buffers_init(void)
{
	if (put_buffers && (put_buffers < TIDE_PUT_MAX || put_buffers > 65536)) {
		pr_err("put_buffers: %u: must be 0, or between %u and 65536\n",
		       put_buffers, TIDE_PUT_MAX);
		return -EINVAL;
	}
	if (!put_buffers)
		put_buffers = tide_buffers_default();
	return 0;
}

/* Gives bare buffers pages, until @count have one or there is no memory. */
static void tide_buffers_grow(unsigned int count)
{
	struct tide_buffer *buffer;

	while (tide_buffers_total < count) {
		buffer = list_first_entry(&tide_buffers_bare, struct tide_buffer, list);
		buffer->page = alloc_page(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
		if (!buffer->page)
			return;
		list_del_init(&buffer->list);
		tide_buffer_free(buffer);
		WRITE_ONCE(tide_buffers_total, tide_buffers_total + 1);
		cond_resched();
	}
}

/* Takes the pages of free buffers, until @count are left or none is free. */
static void tide_buffers_shrink(unsigned int count)
{
	struct tide_buffer *buffer;
	LIST_HEAD(taken);

	while (tide_buffers_total > count && tide_buffers_take(1, &taken)) {
		buffer = list_first_entry(&taken, struct tide_buffer, list);
		__free_page(buffer->page);
		buffer->page = NULL;
		list_move(&buffer->list, &tide_buffers_bare);
		WRITE_ONCE(tide_buffers_total, tide_buffers_total - 1);
	}
}

/* As many as are wanted now; those on their way out, or for want of memory, later. */
static void tide_buffers_fit(struct work_struct *work)
{
	unsigned int count = tide_lenders_take_puts(false) ? put_buffers : TIDE_PUT_MAX;

	tide_buffers_grow(count);
	tide_buffers_shrink(count);
	if (tide_buffers_total != count)
		schedule_delayed_work(&tide_buffers_work, TIDE_BUFFERS_WAIT);
}

/**
 * tide_buffers_refit() - a lender begins to take pages, or takes none any more
 *
 * Context: any, while a lender holds the buffers.
 */
void tide_buffers_refit(void)
{
	bool at_once = tide_lenders_take_puts(false);

	if (at_once)
		cancel_delayed_work(&tide_buffers_work);
	schedule_delayed_work(&tide_buffers_work, at_once ? 0 : TIDE_BUFFERS_WAIT);
}

/* Whoever takes a buffer gives it back before the lender goes that it was taken for. */
static void tide_buffers_free_all(void)
{
	tide_buffers_shrink(0);
	INIT_LIST_HEAD(&tide_buffers_bare);
	if (!WARN_ON_ONCE(tide_buffers_total))
		vfree(tide_buffer_store);
	tide_buffer_store = NULL;
}

static int tide_buffers_alloc(void)
{
	unsigned int i;

	tide_buffer_store = vzalloc(array_size(put_buffers, sizeof(*tide_buffer_store)));
	if (!tide_buffer_store)
		return -ENOMEM;
	for (i = 0; i < put_buffers; i++)
		list_add_tail(&tide_buffer_store[i].list, &tide_buffers_bare);
	tide_buffers_grow(TIDE_PUT_MAX);
	if (tide_buffers_total == TIDE_PUT_MAX)
		return 0;
	tide_buffers_free_all();
	return -ENOMEM;
}

/**
 * tide_buffers_acquire() - there is one more lender
 *
 * One batch of buffers is there while this guest has a lender, enabled or not; a
 * guest that only lends keeps its memory.
 *
 * Context: process.
 * Return: 0, or -ENOMEM when there is not even memory for one batch.
 */
int tide_buffers_acquire(void)
{
	int err = 0;

	mutex_lock(&tide_buffers_mutex);
	if (!tide_buffers_users)
		err = tide_buffers_alloc();
	if (!err)
		tide_buffers_users++;
	mutex_unlock(&tide_buffers_mutex);
	return err;
}

/**
 * tide_buffers_relinquish() - there is one lender less; undoes tide_buffers_acquire()
 */
void tide_buffers_relinquish(void)
{
	mutex_lock(&tide_buffers_mutex);
	if (!--tide_buffers_users) {
		cancel_delayed_work_sync(&tide_buffers_work);
		tide_buffers_free_all();
	}
	mutex_unlock(&tide_buffers_mutex);
}

/**
 * tide_buffers_count() - for the statistics
 * @total: set to how many there are
 * @free: set to how many of them are not used
 */
void tide_buffers_count(unsigned int *total, unsigned int *free)
{
	*total = READ_ONCE(tide_buffers_total);
	*free = READ_ONCE(tide_buffers_idle);
}
EXPORT_SYMBOL_GPL(tide_buffers_count);

/**
 * tide_buffers_take() - free buffers, as many as are asked for, or none
 * @count: how many
 * @taken: they are added to this list
 *
 * Context: any; allocates nothing.
 * Return: whether there were enough.
 */
bool tide_buffers_take(unsigned int count, struct list_head *taken)
{
	unsigned long flags;
	bool enough;

	spin_lock_irqsave(&tide_buffers_lock, flags);
	enough = count <= tide_buffers_idle;
	if (enough) {
		tide_buffers_idle -= count;
		while (count--)
			list_move_tail(tide_buffers_free.next, taken);
	}
	spin_unlock_irqrestore(&tide_buffers_lock, flags);
	return enough;
}
EXPORT_SYMBOL_GPL(tide_buffers_take);

/**
 * tide_buffer_free() - give a buffer back that holds no reference
 * @buffer: on no list
 */
void tide_buffer_free(struct tide_buffer *buffer)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_buffers_lock, flags);
	list_add(&buffer->list, &tide_buffers_free);
	tide_buffers_idle++;
	spin_unlock_irqrestore(&tide_buffers_lock, flags);
}
EXPORT_SYMBOL_GPL(tide_buffer_free);

/**
 * tide_buffer_release() - give a buffer back together with the references that it holds
 * @buffer: on no list, not live
 */
void tide_buffer_release(struct tide_buffer *buffer)
{
	struct tide_lender *lender = buffer->lender;

	tide_object_put(buffer->object);
	buffer->object = NULL;
	buffer->lender = NULL;
	tide_buffer_free(buffer);
	tide_lender_put(lender);
}
