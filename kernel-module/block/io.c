// SPDX-License-Identifier: GPL-2.0-only
/* A bio on its way through a device: what it is, and how the disk gets it. */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/ktime.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/io.h"
#include "block/spans.h"
#include "block/writeout.h"
#include "borrower/disk_latency.h"

/* Whole blocks, each in a page of its own? */
static bool tide_bio_whole(struct bio *bio)
{
	struct bvec_iter iter;
	struct bio_vec bv;

	if ((bio->bi_iter.bi_sector & (TIDE_BLOCK_SECTORS - 1)) ||
	    (bio->bi_iter.bi_size & ~PAGE_MASK))
		return false;
	bio_for_each_bvec(bv, bio, iter)
		if ((bv.bv_offset | bv.bv_len) & ~PAGE_MASK)
			return false;
	return true;
}

/*
 * A disk may have become smaller, as a partition does that is resized. What was past its
 * end is no longer its: others may have it. The disk says so to who asks for it.
 */
static bool tide_io_is_past(const struct tide_io *io)
{
	u64 end = io->iter.bi_sector + (io->iter.bi_size >> SECTOR_SHIFT);

	return end > bdev_nr_sectors(io->device->disk->bdev);
}

/* Of reads and writes; other changes, and a flush, have no data. */
static bool tide_io_is_whole(struct tide_io *io, struct bio *bio)
{
	bool data = bio_has_data(bio);
	bool whole = data && tide_bio_whole(bio) && !tide_io_is_past(io);

	if (data && !whole)
		atomic64_inc(&io->device->stats.partial);
	return whole;
}

/**
 * tide_io_begin() - a bio has come
 * @io: beside it, with what was left of another one
 * @device: that it is for
 * @bio: its sector is counted from the beginning of the device
 *
 * Context: process.
 */
void tide_io_begin(struct tide_io *io, struct tide_device *device, struct bio *bio)
{
	io->device = device;
	io->iter = bio->bi_iter;
	io->at_disk = false;
	io->came = false;
	io->copied = 0;
	io->next = NULL;
	io->at = 0;
	io->whole = tide_io_is_whole(io, bio);
}

/**
 * tide_io_span() - the blocks of which a bio has a part
 * @io: of that bio
 * @changes: it is no read
 */
struct tide_span tide_io_span(const struct tide_io *io, bool changes)
{
	u64 end = io->iter.bi_sector + (io->iter.bi_size >> SECTOR_SHIFT);

	return (struct tide_span) {
		.first = tide_io_first(io),
		.last = (end - 1) >> TIDE_BLOCK_SHIFT,
		.changes = changes,
	};
}

/* What the log has of blocks that change gets to the disk before. */
static int tide_io_enter(struct tide_io *io)
{
	struct tide_span *span = &io->span;
	struct tide_log *log = io->device->log;
	int err = 0;

	tide_span_enter(io->device, span);
	if (span->changes && log && !tide_broken(BLOCK_LOG_ORDER))
		err = tide_writeout_blocks(log, span->first, span->last);
	if (err)
		tide_span_leave(io->device, span);
	return err;
}

/**
 * tide_io_to_disk() - hand a bio to the disk
 * @io: of that bio
 * @changes: it is no read
 *
 * Context: process; a change waits for what the log has of its blocks.
 * Return: as a target's map.
 */
int tide_io_to_disk(struct tide_io *io, bool changes)
{
	enum tide_size size = tide_size(tide_io_blocks(io));

	io->span = tide_io_span(io, changes);
	if (tide_io_enter(io))
		return DM_MAPIO_KILL;
	io->at_disk = true;
	io->sampled = !changes && tide_disk_wanted(size);
	if (io->sampled)
		io->start = ktime_get();
	bio_set_dev(tide_io_bio(io), io->device->disk->bdev);
	return DM_MAPIO_REMAPPED;
}
