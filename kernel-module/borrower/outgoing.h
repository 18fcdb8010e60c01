/* SPDX-License-Identifier: GPL-2.0-only */
/* The pages of an object that are on their way out: outgoing.c. */
#ifndef TIDE_OUTGOING_H
#define TIDE_OUTGOING_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

struct page;
struct tide_lender;
struct tide_object;

/**
 * struct tide_buffer - a page on its way to a lender
 * @node: in @object->outgoing while @live
 * @list: free list, put_queue or none
 * @object: whose page it is; holds a reference while used
 * @lender: where it goes; likewise
 * @index: page index
 * @version: of the page
 * @page: a copy of it
 * @live: the page has not changed since
 */
struct tide_buffer {
	struct rb_node node;
	struct list_head list;
	struct tide_object *object;
	struct tide_lender *lender;
	pgoff_t index;
	u64 version;
	struct page *page;
	bool live;
};

struct tide_buffer *tide_outgoing_find(struct tide_object *object, pgoff_t index);
void tide_outgoing_hit(struct tide_buffer *buffer);
bool tide_outgoing_has(struct tide_object *object, pgoff_t first, pgoff_t last);
void tide_outgoing_insert(struct tide_object *object, struct tide_buffer *buffer);
void tide_outgoing_remove(struct tide_buffer *buffer);
void tide_outgoing_drop_locked(struct tide_object *object, pgoff_t first, pgoff_t last);

#endif /* TIDE_OUTGOING_H */
