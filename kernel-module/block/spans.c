// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the disk is at. Requests for the same blocks that overlap in time may be
 * served in any order, and a disk may do one of two writes last and say so first. So
 * what was read or written while something else changed it is not what the pool may
 * have. Whoever changes blocks enters them before he drops their entries, and what
 * was put then is dropped with them.
 *
 * A block is in the device's log, or is changed past it, never both: the disk would have
 * two versions at a time. Who changes blocks past the log enters them, and then waits for
 * what it has of them: it gets no more of them, so that has an end. What is written into
 * the log is entered until it is put.
 */
#include <linux/interval_tree_generic.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/log.h"
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

/* What the disk has yet to get is not read from there: who does came too early. Object locked. */
static bool tide_span_is_early(const struct tide_device *device, const struct tide_span *span)
{
	return !span->changes && device->log && tide_log_has(device->log, span->first, span->last);
}

/* Object locked. */
static void tide_span_enter_locked(struct tide_device *device, struct tide_span *span)
{
	struct tide_span *other;

	span->mixed = tide_span_is_early(device, span);
	for (other = tide_span_tree_iter_first(&device->spans, span->first, span->last); other;
	     other = tide_span_tree_iter_next(other, span->first, span->last)) {
		tide_span_meet(span, other);
		tide_span_meet(other, span);
	}
	tide_span_tree_insert(span, &device->spans);
}

/**
 * tide_span_enter() - blocks are about to be read from the disk, or to be changed there, or
 * may have changed: the log takes none of them from here on, if it is not read
 * @device: whose
 * @span: filled in
 *
 * Context: any.
 */
void tide_span_enter(struct tide_device *device, struct tide_span *span)
{
	unsigned long flags;

	tide_object_lock(device->object, flags);
	tide_span_enter_locked(device, span);
	tide_object_unlock(device->object, flags);
}

/* Does another one change some of them? Object locked. */
static bool tide_span_is_changed(struct tide_device *device, const struct tide_span *span)
{
	struct tide_span *other;

	for (other = tide_span_tree_iter_first(&device->spans, span->first, span->last); other;
	     other = tide_span_tree_iter_next(other, span->first, span->last))
		if (other->changes)
			return true;
	return false;
}

/**
 * tide_span_enter_log() - blocks are written into the log
 * @device: whose
 * @span: filled in
 * @taken: the blocks, with what is in them; empty afterwards
 *
 * Context: any.
 * Return: false when they are neither entered nor written: the log takes none now, or
 *	the disk may be at other versions of them.
 */
bool tide_span_enter_log(struct tide_device *device, struct tide_span *span,
			 struct list_head *taken)
{
	unsigned long flags;
	bool logged;

	tide_object_lock(device->object, flags);
	logged = tide_log_takes(device->log) && !tide_span_is_changed(device, span);
	if (logged) {
		tide_span_enter_locked(device, span);
		tide_log_insert(device->log, taken);
	} else {
		tide_log_give(device->log, taken);
	}
	tide_object_unlock(device->object, flags);
	return logged;
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
