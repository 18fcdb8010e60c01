/* SPDX-License-Identifier: GPL-2.0-only */
/* A bio on its way through a device: io.c. */
#ifndef TIDE_IO_H
#define TIDE_IO_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/ktime.h>
#include <linux/pagemap.h>
#include <linux/types.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/spans.h"
#include "borrower/fetch.h"

#define TIDE_READ_BLOCKS	32	/* that are asked for in one */
#define TIDE_BIO_BLOCKS		64	/* of a bio: they are copied in one go when it ends */

/**
 * struct tide_io - what is remembered of a bio
 * @device: that it is for
 * @iter: its data, from before the disk had it
 * @span: its blocks, while the disk has it or the log is given them
 * @at_disk: they are among the device's
 * @whole: it is of whole blocks in whole pages
 * @came: all of it has come from the pool
 * @sampled: @start is when it was handed to the disk, which is measured
 * @start: that time
 * @copied: blocks that came from buffers
 * @next: one whose blocks are asked for in the same request (gather.c), or NULL
 * @last: of those that follow it, while it waits in a task's plug
 * @at: its first page in that request
 * @plug: as which it waits there
 * @get: asks for the others, if it is the first of them; TIDE_READ_BLOCKS pages follow
 *
 * Lies beside the bio, in memory that device-mapper has reserved: nothing is
 * allocated for a read or a write.
 */
struct tide_io {
	struct tide_device *device;
	struct bvec_iter iter;
	struct tide_span span;
	bool at_disk, whole, came, sampled;
	ktime_t start;
	unsigned int copied;
	struct tide_io *next, *last;
	unsigned int at;
	struct blk_plug_cb plug;
	struct tide_get get;
};

#define TIDE_IO_SIZE	(sizeof(struct tide_io) +			\
			 TIDE_READ_BLOCKS * sizeof(struct tide_get_page))

static inline struct tide_io *tide_io_of(struct bio *bio)
{
	return dm_per_bio_data(bio, TIDE_IO_SIZE);
}

static inline struct bio *tide_io_bio(struct tide_io *io)
{
	return dm_bio_from_per_bio_data(io, TIDE_IO_SIZE);
}

static inline u64 tide_io_first(const struct tide_io *io)
{
	return io->iter.bi_sector >> TIDE_BLOCK_SHIFT;
}

static inline unsigned int tide_io_blocks(const struct tide_io *io)
{
	return io->iter.bi_size >> PAGE_SHIFT;
}

/*
 * May nobody but the kernel have written to a page since the disk did? A program's
 * own page that it reads into may hold what the program likes, and all would get it.
 */
static inline bool tide_page_is_read_alone(struct page *page)
{
	struct folio *folio = page_folio(page);

	return tide_broken(BLOCK_READS) ||
	       (folio_test_locked(folio) && !folio_test_uptodate(folio) &&
		!folio_mapped(folio) && (folio_test_swapcache(folio) || folio_mapping(folio)));
}

void tide_io_begin(struct tide_io *io, struct tide_device *device, struct bio *bio);
struct tide_span tide_io_span(const struct tide_io *io, bool changes);
int tide_io_to_disk(struct tide_io *io, bool changes);

#endif /* TIDE_IO_H */
