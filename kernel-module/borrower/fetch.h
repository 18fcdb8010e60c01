/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests: who makes them, and their way (fetch.c). */
#ifndef TIDE_FETCH_H
#define TIDE_FETCH_H

#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "base/outcome.h"
#include "borrower/disk_latency.h"
#include "uapi/wire.h"

struct page;
struct tide_object;
struct tide_get;
struct tide_lane;
struct tide_lender;

/**
 * struct tide_get_ops - what becomes of the pages of a request
 * @arrived: pages [@from, @to), which only do together, are filled; they are
 *	the front end's from here on
 * @fall_back: every page that is left is to come from elsewhere; may sleep
 * @free: nothing is left of the request
 */
struct tide_get_ops {
	void (*arrived)(struct tide_get *get, unsigned int from, unsigned int to);
	void (*fall_back)(struct tide_get *get);
	void (*free)(struct tide_get *get);
};

/**
 * struct tide_get - one request: pages of one object at one lender
 * @ops: of the front end that makes it
 * @list: in lane->unsent or lane->pending
 * @work: gets from elsewhere what did not arrive
 * @lender: where the pages are; holds a reference
 * @lane: on which they are asked for
 * @object: whose pages they are; holds a reference
 * @start: when the reader asked
 * @id: on the wire
 * @size: of the window that it is part of
 * @hit: some page has come
 * @receiving: the lane's receiving thread is filling its pages
 * @exclusive: the lender is to drop what it sends
 * @most: pages that the lender takes in one
 * @count: of @page
 * @page: the pages, those that only do together side by side, @last at their end;
 *	@page NULL when done; @corrupt: something else came, which is counted and
 *	not a miss
 */
struct tide_get {
	const struct tide_get_ops *ops;
	struct list_head list;
	struct work_struct work;
	struct tide_lender *lender;
	struct tide_lane *lane;
	struct tide_object *object;
	ktime_t start;
	u64 id;
	enum tide_size size;
	bool hit, receiving, exclusive;
	unsigned int most, count;
	struct tide_get_page {
		struct page *page;
		pgoff_t index;
		u64 version;
		bool last, arrived, corrupt;
	} page[];
};

/* Behind page @i and those that only do together with it. */
static inline unsigned int tide_get_next(const struct tide_get *get, unsigned int i)
{
	while (!get->page[i].last)
		i++;
	return i + 1;
}

void tide_get_begin(struct tide_get *get, const struct tide_get_ops *ops,
		    struct tide_lender *lender, struct tide_object *object,
		    enum tide_size size, unsigned int most);
void tide_get_add(struct tide_get *get, struct page *page, pgoff_t index, u64 version);
void tide_get_copied(struct tide_get *get, pgoff_t index, unsigned int pages,
		     enum tide_got how);
void tide_get_submit(struct tide_get *get);
void tide_get_free(struct tide_get *get);
void tide_get_hasten(struct tide_lender *lender);
void tide_get_abort(struct tide_lane *lane);
int tide_get_data(struct tide_lane *lane, const struct tide_frame *frame);
int tide_get_prepare(struct tide_lane *lane);
void tide_get_release(struct tide_lane *lane);

#endif /* TIDE_FETCH_H */
