// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bios that come together are asked for together. Swap is read ahead with a bio for each
 * page, and a request for one page costs several times as much as a page of a long one.
 * A disk's queue merges what a task has plugged, and so does this.
 *
 * The first of them waits in the task's plug, which is told by what lies beside the bio:
 * nothing is allocated, and while it waits neither device nor module goes.
 */
#include <linux/blkdev.h>
#include <linux/container_of.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/string.h>

#include "block/gather.h"
#include "block/io.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"

/* Whoever is about to sleep may not wait for a socket. Then a worker sends it, as in reclaim. */
static void tide_gather_ends(struct blk_plug_cb *plug, bool asleep)
{
	struct tide_io *first = container_of(plug, struct tide_io, plug);
	unsigned int noio = asleep ? memalloc_noio_save() : 0;

	tide_get_submit(&first->get);
	if (asleep)
		memalloc_noio_restore(noio);
}

/* The first of a device's that waits in a plug, or NULL. */
static struct tide_io *tide_gather_first(struct blk_plug *plug, const struct tide_device *device)
{
	struct blk_plug_cb *cb;

	list_for_each_entry(cb, &plug->cb_list, list)
		if (cb->callback == tide_gather_ends && cb->data == device)
			return container_of(cb, struct tide_io, plug);
	return NULL;
}

/* To the breaker a read of all of them is what one of the first alone is. */
static bool tide_get_fits(const struct tide_get *get, const struct tide_get *other)
{
	unsigned int count = get->count + other->count;

	return get->lender == other->lender && get->exclusive == other->exclusive &&
	       count <= get->most && tide_size(count) == get->size;
}

/* Returns whether a bio's blocks are asked for with those of the bios before it. */
static bool tide_gather_joins(struct tide_io *first, struct tide_io *io)
{
	struct tide_get *get = &first->get;

	if (!tide_get_fits(get, &io->get))
		return false;
	io->at = get->count;
	memcpy(get->page + get->count, io->get.page, io->get.count * sizeof(*get->page));
	get->count += io->get.count;
	first->last->next = io;
	first->last = io;
	return true;
}

static void tide_gather_begin(struct blk_plug *plug, struct tide_io *io)
{
	io->last = io;
	io->plug.callback = tide_gather_ends;
	io->plug.data = io->device;
	list_add(&io->plug.list, &plug->cb_list);
}

/* What does not take the next one waits no longer. */
static void tide_gather_full(struct tide_io *first)
{
	list_del(&first->plug.list);
	tide_get_submit(&first->get);
}

/**
 * tide_gather() - ask for what a bio reads, with others that its task has plugged
 * @io: of that bio; its request has at least one page
 *
 * It may be over before this returns.
 *
 * Context: process; does not wait for the network.
 */
void tide_gather(struct tide_io *io)
{
	struct blk_plug *plug = current->plug;
	struct tide_io *before;

	if (!plug) {
		tide_get_submit(&io->get);
		return;
	}
	before = tide_gather_first(plug, io->device);
	if (before && tide_gather_joins(before, io))
		return;
	tide_gather_begin(plug, io);
	if (before)
		tide_gather_full(before);
}
