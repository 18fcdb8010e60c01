// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bios that come together are asked for together. Swap is read ahead with a bio for each
 * page, and a request for one page costs several times as much as a page of a long one.
 * A disk's queue merges what a task has plugged, and so does this.
 */
#include <linux/blkdev.h>
#include <linux/container_of.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "block/gather.h"
#include "block/io.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"

/**
 * struct tide_gather - what a task has read of a device since it plugged
 * @plug: the task's
 * @first: its request asks for the blocks of all of them. It is always there: while bios
 *	are under way, neither device nor module goes
 * @last: of those that follow it
 */
struct tide_gather {
	struct blk_plug_cb plug;
	struct tide_io *first, *last;
};

/* Whoever is about to sleep may not wait for a socket. Then a worker sends it, as in reclaim. */
static void tide_gather_submit(struct tide_get *get, bool asleep)
{
	unsigned int noio = asleep ? memalloc_noio_save() : 0;

	tide_get_submit(get);
	if (asleep)
		memalloc_noio_restore(noio);
}

static void tide_gather_ends(struct blk_plug_cb *plug, bool asleep)
{
	struct tide_gather *gather = container_of(plug, struct tide_gather, plug);
	struct tide_io *first = gather->first;

	kfree(gather);
	tide_gather_submit(&first->get, asleep);
}

/* NULL: nothing is plugged, or there is no memory; then each bio has a request of its own. */
static struct tide_gather *tide_gather_of_task(struct tide_io *io)
{
	struct blk_plug_cb *plug = blk_check_plugged(tide_gather_ends, io->device,
						     sizeof(struct tide_gather));

	return plug ? container_of(plug, struct tide_gather, plug) : NULL;
}

/* To the breaker a read of all of them is what one of the first alone is. */
static bool tide_get_fits(const struct tide_get *get, const struct tide_get *other)
{
	unsigned int count = get->count + other->count;

	return get->lender == other->lender && get->exclusive == other->exclusive &&
	       count <= get->most && tide_size(count) == get->size;
}

/* Returns whether a bio's blocks are asked for with those of the bios before it. */
static bool tide_gather_joins(struct tide_gather *gather, struct tide_io *io)
{
	struct tide_get *get = gather->first ? &gather->first->get : NULL;

	if (!get || !tide_get_fits(get, &io->get))
		return false;
	io->at = get->count;
	memcpy(get->page + get->count, io->get.page, io->get.count * sizeof(*get->page));
	get->count += io->get.count;
	gather->last->next = io;
	gather->last = io;
	return true;
}

/* A bio begins a request. That of those before it is on its way then, if there are any. */
static void tide_gather_begin(struct tide_gather *gather, struct tide_io *io)
{
	struct tide_io *before = gather->first;

	gather->first = io;
	gather->last = io;
	if (before)
		tide_get_submit(&before->get);
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
	struct tide_gather *gather = tide_gather_of_task(io);

	if (!gather)
		tide_get_submit(&io->get);
	else if (!tide_gather_joins(gather, io))
		tide_gather_begin(gather, io);
}
