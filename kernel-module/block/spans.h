/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks that are being read from the disk or changed there: spans.c. */
#ifndef TIDE_SPANS_H
#define TIDE_SPANS_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

struct tide_device;

/**
 * struct tide_span - the blocks of one bio that the disk has or is to get, or the log is given
 * @node: among the device's, by @first
 * @first: block
 * @last: block, inclusive
 * @subtree: the largest @last below @node
 * @changes: it changes them
 * @mixed: another one changes some of them at the same time: nobody can say which of
 *	the two the disk has in the end, so none of them is put
 */
struct tide_span {
	struct rb_node node;
	u64 first, last, subtree;
	bool changes, mixed;
};

void tide_span_enter(struct tide_device *device, struct tide_span *span);
bool tide_span_enter_log(struct tide_device *device, struct tide_span *span,
			 struct list_head *taken);
void tide_span_leave(struct tide_device *device, struct tide_span *span);

#endif /* TIDE_SPANS_H */
