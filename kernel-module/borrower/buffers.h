/* SPDX-License-Identifier: GPL-2.0-only */
/* Buffers for pages on their way out (buffers.c): who fills, sends and reads them. */
#ifndef TIDE_BUFFERS_H
#define TIDE_BUFFERS_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

struct page;
struct tide_object;
struct tide_lender;

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

int tide_buffers_init(void);
int tide_buffers_acquire(void);
void tide_buffers_relinquish(void);
void tide_buffers_refit(void);
void tide_buffers_count(unsigned int *total, unsigned int *free);
bool tide_buffers_take(unsigned int count, struct list_head *taken);
void tide_buffer_free(struct tide_buffer *buffer);
void tide_buffer_release(struct tide_buffer *buffer);

/* the outgoing pages of an object, by index; the object is locked */
struct tide_buffer *tide_outgoing_find(struct tide_object *object, pgoff_t index);
void tide_outgoing_hit(struct tide_buffer *buffer);
bool tide_outgoing_has(struct tide_object *object, pgoff_t first, pgoff_t last);
void tide_outgoing_insert(struct tide_object *object, struct tide_buffer *buffer);
void tide_outgoing_remove(struct tide_buffer *buffer);
void tide_outgoing_drop_locked(struct tide_object *object, pgoff_t first, pgoff_t last);

#endif /* TIDE_BUFFERS_H */
