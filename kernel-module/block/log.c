// SPDX-License-Identifier: GPL-2.0-only
/*
 * The log of a device that writes behind: blocks that are written, and that the disk has
 * yet to get. All of its memory is there from the beginning. A block that is written
 * again takes a page of its own, for the disk may be at the older one.
 *
 * What is called here has the device's object locked, but to create and to destroy.
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "block/device.h"
#include "block/log.h"

/* ------------------------------------------------------------------ */
/* its memory							       */
/* ------------------------------------------------------------------ */

static atomic_long_t tide_log_sum;	/* blocks that there may be in all logs */

/* Room for a log's blocks, or false: all logs would have more than a quarter of memory. */
static bool tide_log_reserve(unsigned int blocks)
{
	if (atomic_long_add_return(blocks, &tide_log_sum) <= totalram_pages() / 4)
		return true;
	atomic_long_sub(blocks, &tide_log_sum);
	return false;
}

static bool tide_log_fill(struct tide_log *log)
{
	struct tide_logged *logged;

	for (logged = log->store; logged < log->store + log->total; logged++) {
		logged->page = alloc_page(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
		if (!logged->page)
			return false;
		INIT_LIST_HEAD(&logged->list);
		tide_log_free(log, logged);
		cond_resched();
	}
	return true;
}

static void tide_log_no_writeouts(struct tide_log *log)
{
	struct tide_writeout *out;

	for (out = log->writeout; out < log->writeout + TIDE_WRITEOUTS; out++) {
		INIT_LIST_HEAD(&out->blocks);
		out->first = U64_MAX;
	}
}

/**
 * tide_log_create() - an empty log
 * @device: whose
 * @mib: how large
 *
 * Context: process.
 * Return: the log, -ENOMEM, or -EDQUOT: all logs, that of a table that is to be replaced
 *	among them, would have more than a quarter of memory.
 */
struct tide_log *tide_log_create(struct tide_device *device, unsigned int mib)
{
	struct tide_log *log = kzalloc(sizeof(*log), GFP_KERNEL);

	if (!log)
		return ERR_PTR(-ENOMEM);
	log->total = mib << (20 - PAGE_SHIFT);
	if (!tide_log_reserve(log->total)) {
		kfree(log);
		return ERR_PTR(-EDQUOT);
	}
	log->device = device;
	log->blocks = RB_ROOT;
	INIT_LIST_HEAD(&log->free);
	init_completion(&log->ended_all);
	init_waitqueue_head(&log->wait);
	log->store = vzalloc(array_size(log->total, sizeof(*log->store)));
	log->writeout = vzalloc(array_size(TIDE_WRITEOUTS, sizeof(*log->writeout)));
	if (log->store && log->writeout && tide_log_fill(log)) {
		tide_log_no_writeouts(log);
		return log;
	}
	tide_log_destroy(log);
	return ERR_PTR(-ENOMEM);
}

/**
 * tide_log_destroy() - give the memory of a log back, and what is in it
 * @log: that nobody uses
 *
 * Context: process.
 */
void tide_log_destroy(struct tide_log *log)
{
	struct tide_logged *logged;

	for (logged = log->store; logged && logged < log->store + log->total; logged++)
		if (logged->page)
			__free_page(logged->page);
	vfree(log->store);
	vfree(log->writeout);
	atomic_long_sub(log->total, &tide_log_sum);
	kfree(log);
}

/* ------------------------------------------------------------------ */
/* what is in it						       */
/* ------------------------------------------------------------------ */

/**
 * tide_log_from() - the first live block at or after one
 * @log: the log
 * @index: block
 */
struct tide_logged *tide_log_from(const struct tide_log *log, u64 index)
{
	struct rb_node *node = log->blocks.rb_node;
	struct tide_logged *best = NULL;

	while (node) {
		struct tide_logged *logged = rb_entry(node, struct tide_logged, node);

		if (logged->index >= index) {
			best = logged;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return best;
}

/**
 * tide_log_next() - the live block after another
 * @logged: the other, live
 */
struct tide_logged *tide_log_next(struct tide_logged *logged)
{
	struct rb_node *node = rb_next(&logged->node);

	return node ? rb_entry(node, struct tide_logged, node) : NULL;
}

/**
 * tide_log_has() - has the disk yet to get some of these blocks, or is it at them?
 * @log: the log
 * @first: block
 * @last: block, inclusive
 */
bool tide_log_has(const struct tide_log *log, u64 first, u64 last)
{
	const struct tide_logged *logged = tide_log_from(log, first);
	const struct tide_writeout *out;

	if (logged && logged->index <= last)
		return true;
	for (out = log->writeout; out < log->writeout + TIDE_WRITEOUTS; out++)
		if (out->first <= last && out->last >= first)
			return true;
	return false;
}

/* ------------------------------------------------------------------ */
/* blocks come and go						       */
/* ------------------------------------------------------------------ */

/**
 * tide_log_take() - room for some blocks, or for none
 * @log: the log
 * @count: how many
 * @taken: they are added to this list
 *
 * Return: whether there is room.
 */
bool tide_log_take(struct tide_log *log, unsigned int count, struct list_head *taken)
{
	if (!tide_log_takes(log))
		return false;
	if (count > log->unused) {
		atomic64_add(count, &log->stats.full);
		return false;
	}
	tide_log_count_unused(log, -(int)count);
	while (count--)
		list_move_tail(log->free.next, taken);
	return true;
}

/**
 * tide_log_give() - give room back
 * @log: the log
 * @taken: nothing of this list is live
 */
void tide_log_give(struct tide_log *log, struct list_head *taken)
{
	struct tide_logged *logged, *next;

	list_for_each_entry_safe(logged, next, taken, list)
		tide_log_free(log, logged);
}

/*
 * The disk is at an older one, or will never get it: then who waits for a pass that has
 * the older one waits for this.
 */
static void tide_log_replace(struct tide_log *log, struct tide_logged *old,
			     struct tide_logged *logged)
{
	logged->pass = old->pass;
	rb_replace_node(&old->node, &logged->node, &log->blocks);
	old->live = false;
	if (!list_empty(&old->list))
		return;
	tide_log_count_dirty(log, -1);
	tide_log_free(log, old);
}

static void tide_log_insert_one(struct tide_log *log, struct tide_logged *logged)
{
	struct rb_node **link = &log->blocks.rb_node, *parent = NULL;

	logged->live = true;
	logged->pass = log->begun;
	tide_log_count_dirty(log, 1);
	while (*link) {
		struct tide_logged *other = rb_entry(*link, struct tide_logged, node);

		if (logged->index == other->index) {
			tide_log_replace(log, other, logged);
			return;
		}
		parent = *link;
		link = logged->index < other->index ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&logged->node, parent, link);
	rb_insert_color(&logged->node, &log->blocks);
}

/**
 * tide_log_insert() - blocks are written
 * @log: the log
 * @taken: they, with their indices and what is in them; empty afterwards
 *
 * They take the places of older ones.
 */
void tide_log_insert(struct tide_log *log, struct list_head *taken)
{
	struct tide_logged *logged, *next;

	list_for_each_entry_safe(logged, next, taken, list) {
		list_del_init(&logged->list);
		tide_log_insert_one(log, logged);
	}
}

/**
 * tide_log_free() - make room
 * @log: the log
 * @logged: the disk has it, or a newer one, or it holds nothing
 */
void tide_log_free(struct tide_log *log, struct tide_logged *logged)
{
	if (logged->live)
		rb_erase(&logged->node, &log->blocks);
	logged->live = false;
	list_move(&logged->list, &log->free);
	tide_log_count_unused(log, 1);
}
