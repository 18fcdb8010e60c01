/* SPDX-License-Identifier: GPL-2.0-only */
/* A block device in front of a disk, and what is going on there. */
#ifndef TIDE_DEVICE_H
#define TIDE_DEVICE_H

#include <linux/atomic.h>
#include <linux/blk_types.h>
#include <linux/mm.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "uapi/wire.h"

#define TIDE_BLOCK_SHIFT	(PAGE_SHIFT - SECTOR_SHIFT)
#define TIDE_BLOCK_SECTORS	(PAGE_SIZE >> SECTOR_SHIFT)

struct dm_dev;
struct dm_table;
struct tide_log;
struct tide_object;

/* What `dmsetup status` shows; target.c names the members. */
struct tide_device_stats {
	atomic64_t hits;	/* blocks that came from the pool */
	atomic64_t misses;	/* blocks read from the disk: the pool had not got them */
	atomic64_t fallbacks;	/* blocks read from the disk: they did not come from the pool */
	atomic64_t partial;	/* reads and writes that are no whole blocks in whole pages */
	atomic64_t puts;	/* blocks on their way to a lender */
	atomic64_t drops;	/* blocks that do not go to one, though they might */
};

/**
 * struct tide_device - a block device in front of a disk
 * @disk: below it
 * @table: of which it is a line, once it has claimed the disk
 * @claim: of the disk, by claim.c
 * @object: what the pool knows of it: its pages are blocks of 4 KiB, by number
 * @spans: what is being read from the disk or changed there, under the object's lock
 * @log: what the disk has yet to get, or NULL: a write is over when the disk has it
 * @lender: the only one that its blocks go to, or ""
 * @stats: what is counted
 */
struct tide_device {
	struct dm_dev *disk;
	struct dm_table *table;
	struct list_head claim;
	struct tide_object *object;
	struct rb_root_cached spans;
	struct tide_log *log;
	char lender[TIDE_NAME_MAX];
	struct tide_device_stats stats;
};

#endif /* TIDE_DEVICE_H */
