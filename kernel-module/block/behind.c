// SPDX-License-Identifier: GPL-2.0-only
/*
 * Write-behind, for swap: whole blocks are over when they are in the log and on their way
 * to a lender, and the disk gets them later (writeout.c). A lender's copy is a cache, as it
 * is with write-through: the log keeps a block until the disk has it. All else that
 * changes blocks waits for what the log has of them, and goes to the disk. A read looks
 * in the log first. What finds no room is written through.
 */
#include <linux/bio.h>
#include <linux/blk_types.h>
#include <linux/device-mapper.h>
#include <linux/err.h>
#include <linux/highmem.h>
#include <linux/sched/mm.h>

#include "base/broken.h"
#include "block/behind.h"
#include "block/device.h"
#include "block/io.h"
#include "block/log.h"
#include "block/spans.h"
#include "block/writeout.h"
#include "block/writes.h"
#include "borrower/object.h"

/* ------------------------------------------------------------------ */
/* writes							       */
/* ------------------------------------------------------------------ */

/* Whoever asks for FUA wants the disk to have it. */
static bool tide_behind_may(struct tide_io *io)
{
	struct bio *bio = tide_io_bio(io);

	return io->whole && bio_op(bio) == REQ_OP_WRITE && !(bio->bi_opf & REQ_FUA);
}

static bool tide_behind_take(struct tide_io *io, struct list_head *taken)
{
	struct tide_device *device = io->device;
	unsigned long flags;
	bool room;

	tide_object_lock(device->object, flags);
	room = tide_log_take(device->log, tide_io_blocks(io), taken);
	tide_object_unlock(device->object, flags);
	return room;
}

static void tide_behind_copy(struct tide_io *io, struct list_head *taken)
{
	struct tide_logged *logged = list_first_entry(taken, struct tide_logged, list);
	u64 index = tide_io_first(io);
	struct bvec_iter iter;
	struct bio_vec bv;

	bio_for_each_segment(bv, tide_io_bio(io), iter) {
		logged->index = index++;
		copy_highpage(logged->page, bv.bv_page);
		logged = list_next_entry(logged, list);
	}
}

/**
 * tide_behind_write() - write blocks into the log
 * @io: of a bio that changes blocks
 *
 * Context: process; allocates nothing and does not wait.
 * Return: whether that is done, and the bio over.
 */
bool tide_behind_write(struct tide_io *io)
{
	struct tide_device *device = io->device;
	LIST_HEAD(taken);

	if (!tide_behind_may(io) || !tide_behind_take(io, &taken))
		return false;
	tide_behind_copy(io, &taken);
	io->span = tide_io_span(io, true);
	if (!tide_span_enter_log(device, &io->span, &taken))
		return false;
	tide_io_changes(io);
	tide_io_put(io);
	tide_span_leave(device, &io->span);
	tide_writeout_arm(device->log);
	bio_endio(tide_io_bio(io));
	return true;
}

/* ------------------------------------------------------------------ */
/* reads							       */
/* ------------------------------------------------------------------ */

/* A bio's data, which need not lie as blocks do, from its first bytes on. Object locked. */
static void tide_behind_fill(struct tide_io *io, unsigned int bytes)
{
	u64 at = (u64)io->iter.bi_sector << SECTOR_SHIFT;
	struct bio *bio = tide_io_bio(io);
	struct bvec_iter iter = bio->bi_iter;

	while (bytes) {
		struct tide_logged *logged = tide_log_from(io->device->log, at >> PAGE_SHIFT);
		struct bio_vec bv = bio_iter_iovec(bio, iter);
		unsigned int offset = offset_in_page(at);
		unsigned int len = min3(bv.bv_len, (unsigned int)PAGE_SIZE - offset, bytes);

		memcpy_page(bv.bv_page, bv.bv_offset, logged->page, offset, len);
		bio_advance_iter_single(bio, &iter, len);
		bytes -= len;
		at += len;
	}
}

/* How many blocks are in the log from one on, without a gap? Object locked. */
static unsigned int tide_behind_run(struct tide_logged *logged, u64 last)
{
	u64 first = logged->index, index = first;

	while (logged && logged->index == index && index <= last) {
		logged = tide_log_next(logged);
		index++;
	}
	return index - first;
}

/*
 * How many sectors of a read are in the log, or not in it, before that changes? Those
 * that are have been copied. Object locked.
 */
static unsigned int tide_behind_collect(struct tide_io *io, bool *logged)
{
	struct tide_span span = tide_io_span(io, false);
	struct tide_logged *next = tide_log_from(io->device->log, span.first);
	unsigned int sectors = io->iter.bi_size >> SECTOR_SHIFT, most;
	u64 end = span.last + 1;

	*logged = next && next->index == span.first;
	if (*logged)
		end = span.first + tide_behind_run(next, span.last);
	else if (next && next->index < end)
		end = next->index;
	most = (end << TIDE_BLOCK_SHIFT) - io->iter.bi_sector;
	sectors = min(sectors, most);
	if (*logged)
		tide_behind_fill(io, sectors << SECTOR_SHIFT);
	return sectors;
}

/* Only the first sectors of a bio are dealt with now. */
static void tide_behind_cut(struct tide_io *io, unsigned int sectors)
{
	if (sectors == io->iter.bi_size >> SECTOR_SHIFT)
		return;
	dm_accept_partial_bio(tide_io_bio(io), sectors);
	io->iter.bi_size = sectors << SECTOR_SHIFT;
}

/**
 * tide_behind_read() - read what the log has
 * @io: of a bio that reads, whole blocks or not; it is cut where log and disk meet
 *
 * Context: process; does not wait.
 * Return: whether what is left of the bio came from the log, and it is over.
 */
bool tide_behind_read(struct tide_io *io)
{
	struct tide_device *device = io->device;
	unsigned int sectors;
	unsigned long flags;
	bool logged;

	if (tide_broken(BLOCK_LOG_READ))
		return false;
	tide_object_lock(device->object, flags);
	sectors = tide_behind_collect(io, &logged);
	tide_object_unlock(device->object, flags);
	tide_behind_cut(io, sectors);
	if (!logged)
		return false;
	if (io->whole)
		atomic64_add(tide_io_blocks(io), &device->log->stats.reads);
	bio_endio(tide_io_bio(io));
	return true;
}

/* ------------------------------------------------------------------ */
/* the device							       */
/* ------------------------------------------------------------------ */

/**
 * tide_behind_flush() - the disk gets what is in the log
 * @device: that writes behind
 *
 * Context: process; waits.
 * Return: 0, or -EIO: the disk did not take all.
 */
int tide_behind_flush(struct tide_device *device)
{
	return tide_broken(BLOCK_LOG_FLUSH) ? 0 : tide_writeout_all(device->log);
}

/**
 * tide_behind_refuses() - is a write to be durable, and what came before it is not?
 * @io: of a bio
 *
 * Device-mapper sends the data of a bio on that was to be flushed before, also when that
 * failed: as FUA, if a file system commits by it.
 */
bool tide_behind_refuses(struct tide_io *io)
{
	return tide_io_bio(io)->bi_opf & REQ_FUA && READ_ONCE(io->device->log->failed);
}

static int tide_behind_fill_in(struct tide_device *device, unsigned int mib)
{
	struct tide_log *log = tide_log_create(device, mib);

	if (IS_ERR(log))
		return PTR_ERR(log);
	if (tide_writeout_init(log)) {
		tide_log_destroy(log);
		return -ENOMEM;
	}
	device->log = log;
	return 0;
}

/**
 * tide_behind_create() - a device is to write behind
 * @device: the device, with disk and object
 * @mib: how large its log is
 *
 * Context: process. Swaps nothing to make room: what is swapped to may be suspended.
 * Return: 0, or as tide_log_create().
 */
int tide_behind_create(struct tide_device *device, unsigned int mib)
{
	unsigned int noio = memalloc_noio_save();
	int err = tide_behind_fill_in(device, mib);

	memalloc_noio_restore(noio);
	return err;
}

/**
 * tide_behind_destroy() - the end of a device that writes behind
 * @device: suspended, if it was ever resumed
 *
 * Context: process.
 */
void tide_behind_destroy(struct tide_device *device)
{
	tide_writeout_exit(device->log);
	tide_log_destroy(device->log);
	device->log = NULL;
}
