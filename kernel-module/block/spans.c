// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the disk is at. Requests for the same blocks that overlap in time may be
 * served in any order, and a disk may do one of two writes last and say so first. So
 * what was read or written while something else changed it is not what the pool may
 * have. Whoever changes blocks enters them before he drops their entries, and what
 * was put then is dropped with them.
 */
#include <linux/interval_tree_generic.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/spans.h"
#include "borrower/object.h"

#define TIDE_SPAN_FIRST(span)	((span)->first)
#define TIDE_SPAN_LAST(span)	((span)->last)

INTERVAL_TREE_DEFINE(struct tide_span, node, u64, subtree, TIDE_SPAN_FIRST, TIDE_SPAN_LAST,
		     static inline, tide_span_tree)

/* One of two that meet: what it reads or writes may not be what the disk will have. */
static void tide_span_meet(struct tide_span *span, const struct tide_span *other)
{
	if (other->changes && !tide_broken(BLOCK_SPANS))
		WRITE_ONCE(span->mixed, true);
}

/**
 * tide_span_enter() - blocks are about to be read from the disk or changed there
 * @device: whose
 * @span: filled in
 *
 * Context: any.
 */
void tide_span_enter(struct tide_device *device, struct tide_span *span)
{
	struct tide_span *other;
	unsigned long flags;

	span->mixed = false;
	tide_object_lock(device->object, flags);
	for (other = tide_span_tree_iter_first(&device->spans, span->first, span->last); other;
	     other = tide_span_tree_iter_next(other, span->first, span->last)) {
		tide_span_meet(span, other);
		tide_span_meet(other, span);
	}
	tide_span_tree_insert(span, &device->spans);
	tide_object_unlock(device->object, flags);
}

/**
 * tide_span_leave() - the disk is through with them, and nothing of them is put any more
 * @device: whose
 * @span: that was entered
 *
 * Context: any.
 */
void tide_span_leave(struct tide_device *device, struct tide_span *span)
{
	unsigned long flags;

	tide_object_lock(device->object, flags);
	tide_span_tree_remove(span, &device->spans);
	tide_object_unlock(device->object, flags);
}
