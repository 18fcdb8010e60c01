// SPDX-License-Identifier: GPL-2.0-only
/* The pages of an object that are in buffers, by index; the object is locked. */
#include <linux/export.h>
#include <linux/ktime.h>
#include <linux/rbtree.h>

#include "base/outcome.h"
#include "base/trace.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"

static struct tide_buffer *tide_outgoing_at_or_after(struct tide_object *object,
						     pgoff_t index)
{
	struct rb_node *node = object->outgoing.rb_node;
	struct tide_buffer *best = NULL;

	while (node) {
		struct tide_buffer *buffer = rb_entry(node, struct tide_buffer, node);

		if (buffer->index >= index) {
			best = buffer;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return best;
}

/**
 * tide_outgoing_find() - the buffer that holds a page, if one does
 * @object: the object, locked
 * @index: page index
 */
struct tide_buffer *tide_outgoing_find(struct tide_object *object, pgoff_t index)
{
	struct tide_buffer *buffer = tide_outgoing_at_or_after(object, index);

	return buffer && buffer->index == index ? buffer : NULL;
}
EXPORT_SYMBOL_GPL(tide_outgoing_find);

/**
 * tide_outgoing_hit() - a page was read from its buffer, and needs no other one
 * @buffer: its object is locked
 */
void tide_outgoing_hit(struct tide_buffer *buffer)
{
	const struct tide_object *object = buffer->object;
	struct tide_lender *lender = buffer->lender;

	atomic64_inc(&lender->stats.get_hits);
	atomic64_inc(&lender->stats.get_hits_buffer);
	trace_tidepool_get(object->dev, object->number, buffer->index, 1, lender->name,
			   TIDE_GOT_BUFFER, 0);
}
EXPORT_SYMBOL_GPL(tide_outgoing_hit);

/**
 * tide_outgoing_has() - does any buffer hold one of these pages?
 * @object: the object, locked
 * @first: first page index
 * @last: last page index, inclusive
 */
bool tide_outgoing_has(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	struct tide_buffer *buffer = tide_outgoing_at_or_after(object, first);

	return buffer && buffer->index <= last;
}

/**
 * tide_outgoing_insert() - gets of a page are served from a buffer from here on
 * @object: the object, locked
 * @buffer: filled; no other one holds that page
 */
void tide_outgoing_insert(struct tide_object *object, struct tide_buffer *buffer)
{
	struct rb_node **link = &object->outgoing.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		if (buffer->index < rb_entry(parent, struct tide_buffer, node)->index)
			link = &parent->rb_left;
		else
			link = &parent->rb_right;
	}
	rb_link_node(&buffer->node, parent, link);
	rb_insert_color(&buffer->node, &object->outgoing);
	buffer->live = true;
}

/**
 * tide_outgoing_remove() - gets are served from a buffer no longer
 * @buffer: its object is locked
 */
void tide_outgoing_remove(struct tide_buffer *buffer)
{
	if (!buffer->live)
		return;
	rb_erase(&buffer->node, &buffer->object->outgoing);
	buffer->live = false;
}

/**
 * tide_outgoing_drop_locked() - pages of this range have changed
 * @object: the object, locked
 * @first: first page index
 * @last: last page index, inclusive
 *
 * The buffers themselves are freed by whoever has them on a list.
 */
void tide_outgoing_drop_locked(struct tide_object *object, pgoff_t first, pgoff_t last)
{
	struct tide_buffer *buffer;

	while ((buffer = tide_outgoing_at_or_after(object, first)) &&
	       buffer->index <= last)
		tide_outgoing_remove(buffer);
}
