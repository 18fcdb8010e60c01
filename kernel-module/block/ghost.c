// SPDX-License-Identifier: GPL-2.0-only
/*
 * What ghost mode is told of block devices: each whole block that is read or changed,
 * when the request comes. What counts as a put is what would for a lender (writes.c),
 * but for requests that overlap or fail, which are rare.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>

#include "block/device.h"
#include "block/ghost.h"
#include "block/io.h"

static struct tide_ghost_name tide_device_name(const struct tide_device *device)
{
	u64 owner = (unsigned long)device;

	return (struct tide_ghost_name) {
		.owner = owner,
		.file = owner,
		.number = device->disk->bdev->bd_dev,
	};
}

/**
 * tide_io_ghost_read() - blocks are being read
 * @io: of whole blocks, all of which are dealt with now
 *
 * Context: process.
 */
void tide_io_ghost_read(struct tide_io *io)
{
	struct tide_ghost_name name = tide_device_name(io->device);
	u64 index = tide_io_first(io);
	struct bvec_iter iter;
	struct bio_vec bv;

	__bio_for_each_segment(bv, tide_io_bio(io), iter, io->iter) {
		if (tide_ghost_follows_page(&name, index)) {
			tide_ghost_read(&name, index);
			if (tide_page_is_read_alone(bv.bv_page))
				tide_ghost_copied(&name, index);
		}
		index++;
	}
}

/**
 * tide_io_ghost_changed() - blocks are being written, discarded or zeroed
 * @io: of a bio that does; its span is filled in
 *
 * Context: process.
 */
void tide_io_ghost_changed(struct tide_io *io)
{
	struct tide_ghost_name name = tide_device_name(io->device);
	u64 index = io->span.first, end = io->span.last + 1;

	tide_ghost_changed(&name, io->span.first, io->span.last);
	if (!io->whole)
		return;
	while ((index = tide_ghost_next(name.number, index, end)) < end)
		tide_ghost_left(&name, index++);
}

/**
 * tide_device_ghost_gone() - a pool would have nothing of a device any more
 * @device: the device
 *
 * Context: process.
 */
void tide_device_ghost_gone(const struct tide_device *device)
{
	tide_ghost_gone((unsigned long)device);
}
