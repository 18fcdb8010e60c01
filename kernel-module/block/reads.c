// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a bio reads that the pool has comes from there, the rest from the disk. A bio
 * of which the pool has a part is cut where that ends, and device-mapper comes back
 * with what is left of it. Pages go straight into the memory of whoever reads.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/kref.h>

#include "base/stats.h"
#include "block/device.h"
#include "block/gather.h"
#include "block/ghost.h"
#include "block/io.h"
#include "block/reads.h"
#include "borrower/breaker.h"
#include "borrower/catalog_pages.h"
#include "borrower/fetch.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"

/* ------------------------------------------------------------------ */
/* what becomes of a request					       */
/* ------------------------------------------------------------------ */

/* The bio whose pages of a request begin with page @at, among those that share it. */
static struct tide_io *tide_io_at(struct tide_get *get, unsigned int at)
{
	struct tide_io *io = container_of(get, struct tide_io, get);

	while (io->at != at)
		io = io->next;
	return io;
}

static void tide_io_came(struct tide_io *io, struct tide_get *get)
{
	io->came = true;
	if (io->copied)
		tide_get_copied(get, tide_io_first(io), io->copied, TIDE_GOT_BUFFER);
}

/* All are in the reader's memory: they only do together, for he goes on when all are. */
static void tide_io_arrived(struct tide_get *get, unsigned int from, unsigned int to)
{
	tide_io_came(tide_io_at(get, from), get);
}

static void tide_io_fall_back(struct tide_get *get)
{
	struct tide_io *io;

	for (io = container_of(get, struct tide_io, get); io; io = io->next)
		if (!io->came && io->copied)
			tide_get_copied(get, tide_io_first(io), io->copied, TIDE_GOT_INCOMPLETE);
}

/* All of it is read again: that is one request to the disk, and it is rare. */
static void tide_io_read_lost(struct tide_io *io)
{
	struct bio *bio = tide_io_bio(io);

	tide_count_pages(misses, tide_io_blocks(io));
	atomic64_add(tide_io_blocks(io), &io->device->stats.fallbacks);
	bio_set_dev(bio, io->device->disk->bdev);
	submit_bio_noacct(bio);
}

/* Nothing of @io, nor of its request, may be touched when its bio is over. */
static void tide_io_over(struct tide_io *io)
{
	if (!io->came) {
		tide_io_read_lost(io);
		return;
	}
	atomic64_add(tide_io_blocks(io), &io->device->stats.hits);
	bio_endio(tide_io_bio(io));
}

/* Those that shared it have requests of their own that nobody sent. */
static void tide_io_got(struct tide_get *get)
{
	struct tide_io *io = container_of(get, struct tide_io, get), *next;
	struct blk_plug plug;

	blk_start_plug(&plug);	/* of the disk, too, they are read together */
	while ((next = io->next)) {
		io->next = next->next;
		next->next = NULL;
		tide_get_free(&next->get);
	}
	tide_io_over(io);
	blk_finish_plug(&plug);
}

static const struct tide_get_ops tide_io_ops = {
	.arrived = tide_io_arrived,
	.fall_back = tide_io_fall_back,
	.free = tide_io_got,
};

/* ------------------------------------------------------------------ */
/* what comes from where					       */
/* ------------------------------------------------------------------ */

/*
 * Is one more block where those before it are? What is in buffers is with any
 * lender's; @where is the lender as soon as there is one.
 */
static bool tide_where_joins(int *where, int block)
{
	if (block == *where || (block == TIDE_BUFFERED && *where >= 0))
		return true;
	if (*where != TIDE_BUFFERED || block < 0)
		return false;
	*where = block;
	return true;
}

/* Where a bio's first blocks are; returns how many are there. */
static unsigned int tide_io_look(struct tide_io *io, int *where)
{
	struct tide_object *object = io->device->object;
	unsigned int n = 1, blocks = tide_io_blocks(io);
	u64 first = tide_io_first(io);
	unsigned long flags;

	if (!tide_object_has(object, first, first + blocks - 1)) {
		*where = TIDE_NOWHERE;
		return blocks;
	}
	tide_object_lock(object, flags);
	*where = tide_object_where(object, first);
	while (n < blocks && tide_where_joins(where, tide_object_where(object, first + n)))
		n++;
	tide_object_unlock(object, flags);
	return n;
}

/* Takes one block: false if it is not where it was. Object locked. */
static bool tide_io_take(struct tide_io *io, struct page *page, u64 index, int where)
{
	struct tide_buffer *buffer = tide_outgoing_find(io->device->object, index);
	u64 version;
	int slot;

	if (buffer) {
		copy_highpage(page, buffer->page);
		if (where == TIDE_BUFFERED)
			tide_outgoing_hit(buffer);
		io->copied++;
		return true;
	}
	version = tide_object_version(io->device->object, index, &slot);
	if (!version || slot != where)
		return false;
	tide_get_add(&io->get, page, index, version);
	return true;
}

/* Copies what is in buffers, and asks for what is at a lender; returns how many it is. */
static unsigned int tide_io_collect(struct tide_io *io, int where, unsigned int most)
{
	struct tide_object *object = io->device->object;
	u64 first = tide_io_first(io);
	struct bvec_iter iter;
	unsigned long flags;
	unsigned int n = 0;
	struct bio_vec bv;

	tide_object_lock(object, flags);
	tide_object_used(object);
	bio_for_each_segment(bv, tide_io_bio(io), iter) {
		if (n == most || !tide_io_take(io, bv.bv_page, first + n, where))
			break;
		n++;
	}
	tide_object_unlock(object, flags);
	return n;
}

/* Only the first blocks of a bio are dealt with now. */
static void tide_io_cut(struct tide_io *io, unsigned int blocks)
{
	if (blocks < tide_io_blocks(io)) {
		dm_accept_partial_bio(tide_io_bio(io), blocks << TIDE_BLOCK_SHIFT);
		io->iter.bi_size = blocks << PAGE_SHIFT;
	}
	if (tide_ghost_is_on())
		tide_io_ghost_read(io);
}

/* All of them were in buffers. */
static int tide_io_copied(struct tide_io *io)
{
	tide_io_cut(io, io->copied);
	atomic64_add(io->copied, &io->device->stats.hits);
	bio_endio(tide_io_bio(io));
	return DM_MAPIO_SUBMITTED;
}

/*
 * Blocks have changed since they were looked for, and are read from disk: what a
 * lender has of them by now was not asked for.
 */
static void tide_io_moved(struct tide_io *io, unsigned int blocks)
{
	struct tide_object *object = io->device->object;
	u64 first = tide_io_first(io);
	unsigned long flags;
	unsigned int n;

	tide_object_lock(object, flags);
	for (n = 0; n < blocks; n++)
		tide_lender_unasked(tide_object_where(object, first + n), 1);
	tide_object_unlock(object, flags);
}

/* Of one lender, and out of buffers; false: it goes to the disk. */
static bool tide_io_ask(struct tide_io *io, int slot, unsigned int blocks)
{
	enum tide_size size = tide_size(tide_io_blocks(io));
	struct tide_lender *lender = tide_lender_to_ask(slot, size, blocks);
	unsigned int taken, most;

	if (!lender)
		return false;
	most = min_t(unsigned int, READ_ONCE(lender->agreed.get), TIDE_READ_BLOCKS);
	tide_get_begin(&io->get, &tide_io_ops, lender, io->device->object, size, most);
	blocks = min(blocks, most);
	taken = tide_io_collect(io, slot, blocks);
	if (!taken)
		tide_io_moved(io, blocks);
	tide_io_cut(io, taken ?: blocks);
	if (io->get.count) {
		io->get.page[io->get.count - 1].last = true;
		tide_gather(io);
	} else {
		if (taken)
			tide_io_came(io, &io->get);
		tide_get_free(&io->get);
	}
	return true;
}

static int tide_io_miss(struct tide_io *io, unsigned int blocks)
{
	tide_io_cut(io, blocks);
	tide_count_pages(misses, blocks);
	atomic64_add(blocks, &io->device->stats.misses);
	return tide_io_to_disk(io, false);
}

/**
 * tide_io_read() - begin to read whole blocks
 * @io: of a bio that reads them
 *
 * Context: process; does not wait for the network.
 * Return: as a target's map.
 */
int tide_io_read(struct tide_io *io)
{
	unsigned int blocks;
	int where;

	do {	/* until a block that has left its buffer meanwhile is seen to be with its lender */
		blocks = tide_io_look(io, &where);
		if (where == TIDE_BUFFERED && tide_io_collect(io, where, blocks))
			return tide_io_copied(io);
	} while (where == TIDE_BUFFERED);
	if (where >= 0 && tide_io_ask(io, where, blocks))
		return DM_MAPIO_SUBMITTED;
	return tide_io_miss(io, blocks);
}
