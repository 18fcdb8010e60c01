// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that a borrower has no use for any more. Whoever removes a large file names
 * hundreds of thousands, and behind that on the connection may be what another reader
 * waits for: so a few go at once, and the rest later, by a worker.
 */
#include <linux/gfp.h>
#include <linux/kfifo.h>
#include <linux/workqueue.h>

#include "base/broken.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/shelf.h"
#include "lender/unwanted.h"
#include "uapi/wire.h"

#define TIDE_UNWANTED_NOW	512	/* pages that go at once, of a frame */
#define TIDE_UNWANTED_RANGES	1024	/* that wait */
#define TIDE_UNWANTED_BATCH	64	/* pages, then the worker looks for the session */

/* Drops some pages of a range, and moves its begin behind these; false: none is left. */
static bool tide_unwanted_some(struct tide_shelf *shelf, struct tide_forget_item *item,
			       unsigned int *most)
{
	struct tide_range range = {
		.at.file = le64_to_cpu(item->file),
		.at.index = le64_to_cpu(item->first),
		.last = le64_to_cpu(item->last),
		.before = le64_to_cpu(item->before),
	};
	bool left = tide_shelf_forget(shelf, &range, most);

	item->first = cpu_to_le64(range.at.index);
	return left;
}

static bool tide_unwanted_follows(const struct tide_forget_item *item,
				  const struct tide_forget_item *next)
{
	u64 last = le64_to_cpu(item->last);

	return next->file == item->file && le64_to_cpu(next->first) == last + 1 &&
	       le64_to_cpu(next->last) > last;
}

/**
 * tide_unwanted_join() - take ranges that follow one another for one
 * @item: the ranges
 * @count: how many, at least one
 * @all: set to the first of them, together; what is younger than any of these says stays
 *
 * Return: how many these are.
 */
unsigned int tide_unwanted_join(const struct tide_forget_item *item, unsigned int count,
				struct tide_forget_item *all)
{
	unsigned int n = 1;

	*all = *item;
	for (; n < count && tide_unwanted_follows(all, &item[n]) && !tide_broken(JOIN); n++) {
		all->last = item[n].last;
		if (le64_to_cpu(item[n].before) < le64_to_cpu(all->before))
			all->before = item[n].before;
	}
	return n;
}

/* Its rest goes to the worker; as long as that has no room, some more of it goes at once. */
static void tide_unwanted_later(struct tide_borrower *borrower, struct tide_forget_item *item)
{
	unsigned int most;

	while (!kfifo_put(&borrower->unwanted, *item)) {
		most = TIDE_UNWANTED_BATCH;
		if (!READ_ONCE(borrower->enabled) || READ_ONCE(borrower->taking) ||
		    !tide_unwanted_some(borrower->shelf, item, &most))
			return;
	}
	queue_work(tide_put_queue, &borrower->drop);
}

/**
 * tide_unwanted_add() - drop pages, many of them later
 * @borrower: who says so; it has a session
 * @item: which pages
 * @count: of @item
 *
 * Context: the GET channel's thread.
 */
void tide_unwanted_add(struct tide_borrower *borrower, const struct tide_forget_item *item,
		       unsigned int count)
{
	unsigned int i = 0, most = TIDE_UNWANTED_NOW;
	struct tide_forget_item all;

	while (i < count) {
		i += tide_unwanted_join(&item[i], count - i, &all);
		if (tide_unwanted_some(borrower->shelf, &all, &most))
			tide_unwanted_later(borrower, &all);
	}
}

/* All of a range, unless the session ends: its shelf is destroyed after this work. */
static void tide_unwanted_rest(struct tide_borrower *borrower, struct tide_forget_item *item)
{
	struct tide_shelf *shelf;
	unsigned int most;

	do {
		most = TIDE_UNWANTED_BATCH;
		shelf = READ_ONCE(borrower->shelf);
	} while (shelf && tide_unwanted_some(shelf, item, &most));
}

/**
 * tide_unwanted_drop() - drop what was left for later
 * @work: borrower->drop
 */
void tide_unwanted_drop(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(work, struct tide_borrower, drop);
	struct tide_forget_item item;

	while (kfifo_get(&borrower->unwanted, &item))
		tide_unwanted_rest(borrower, &item);
}

/**
 * tide_unwanted_begin() - a session begins
 * @borrower: whose; its mutex is held
 *
 * Return: 0 or -ENOMEM.
 */
int tide_unwanted_begin(struct tide_borrower *borrower)
{
	return kfifo_alloc(&borrower->unwanted, TIDE_UNWANTED_RANGES, GFP_KERNEL);
}

/**
 * tide_unwanted_end() - a session is over
 * @borrower: whose; its mutex is held, and its shelf is not to be found any more
 *
 * Context: process.
 */
void tide_unwanted_end(struct tide_borrower *borrower)
{
	cancel_work_sync(&borrower->drop);
	kfifo_free(&borrower->unwanted);
}
