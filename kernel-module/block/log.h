/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks that are written, and that the disk has yet to get: log.c. */
#ifndef TIDE_LOG_H
#define TIDE_LOG_H

#include <linux/atomic.h>
#include <linux/bio.h>
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/rbtree.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct tide_device;

#define TIDE_LOG_MIB		16	/* if the table does not say */
#define TIDE_LOG_MIB_MOST	1024
#define TIDE_WRITEOUTS		8	/* that the disk has at a time */
#define TIDE_WRITEOUT_BLOCKS	BIO_MAX_VECS

/**
 * struct tide_logged - a block in a log, or room for one
 * @node: among the log's while @live
 * @list: the free ones, those of a write-out, or none
 * @page: what was written last while @live
 * @index: block
 * @pass: a later pass has it: the last that had begun when it, or what it took the place
 *	of, was written
 * @live: it was written last; else a newer one took its place, and the disk is at this
 *
 * Nothing is written into @page from when it is live until it is free again.
 */
struct tide_logged {
	struct rb_node node;
	struct list_head list;
	struct page *page;
	u64 index;
	u64 pass;
	bool live;
};

/**
 * struct tide_writeout - neighbouring blocks that the disk is at
 * @bio: them
 * @vec: its pages
 * @blocks: them, in order; some may not be live any more
 * @first: block
 * @last: block, inclusive; less than @first if there are none
 */
struct tide_writeout {
	struct bio bio;
	struct bio_vec vec[TIDE_WRITEOUT_BLOCKS];
	struct list_head blocks;
	u64 first, last;
};

/* What `dmsetup status` shows beside what all devices do; target.c names the members. */
struct tide_log_stats {
	atomic64_t reads;	/* blocks that came from the log */
	atomic64_t written;	/* blocks that the disk has got from it */
	atomic64_t writeouts;	/* requests in which it did */
	atomic64_t full;	/* blocks that found no room, and went to the disk at once */
	atomic64_t errors;	/* requests that the disk refused */
};

/**
 * struct tide_log - blocks that are written, and that the disk has yet to get
 * @device: whose
 * @blocks: live ones, by index
 * @free: room
 * @total: blocks that it can have
 * @unused: of these are free
 * @dirty: are live, and the disk is not at them
 * @failed: the disk did not take all: nothing more is taken until it does
 * @closed: the device is suspended: nothing more is taken
 * @begun: passes through all that is dirty; a pass is one work item
 * @ended: of these, in the same order
 * @failed_pass: the last one in which the disk refused something
 * @stats: what is counted
 * @store: all blocks
 * @writeout: TIDE_WRITEOUTS of them
 * @at_disk: write-outs that have not ended
 * @ended_all: they have
 * @wait: for what ends
 * @queue: of the passes
 * @work: the next one
 *
 * From @blocks to @failed_pass all but @total is guarded by the lock of the device's
 * object, as are the blocks of @writeout.
 */
struct tide_log {
	struct tide_device *device;
	struct rb_root blocks;
	struct list_head free;
	unsigned int total, unused, dirty;
	bool failed, closed;
	u64 begun, ended, failed_pass;
	struct tide_log_stats stats;
	struct tide_logged *store;
	struct tide_writeout *writeout;
	atomic_t at_disk;
	struct completion ended_all;
	wait_queue_head_t wait;
	struct workqueue_struct *queue;
	struct delayed_work work;
};

struct tide_log *tide_log_create(struct tide_device *device, unsigned int mib);
void tide_log_destroy(struct tide_log *log);
struct tide_logged *tide_log_from(const struct tide_log *log, u64 index);
struct tide_logged *tide_log_next(struct tide_logged *logged);
bool tide_log_has(const struct tide_log *log, u64 first, u64 last);
bool tide_log_take(struct tide_log *log, unsigned int count, struct list_head *taken);
void tide_log_give(struct tide_log *log, struct list_head *taken);
void tide_log_insert(struct tide_log *log, struct list_head *taken);
void tide_log_free(struct tide_log *log, struct tide_logged *logged);

/* Does it take blocks now? */
static inline bool tide_log_takes(const struct tide_log *log)
{
	return !log->failed && !log->closed;
}

static inline void tide_log_count_dirty(struct tide_log *log, int more)
{
	WRITE_ONCE(log->dirty, log->dirty + more);
}

static inline void tide_log_count_unused(struct tide_log *log, int more)
{
	WRITE_ONCE(log->unused, log->unused + more);
}

static inline unsigned int tide_log_pages(const struct tide_log *log)
{
	return log->total - READ_ONCE(log->unused);
}

#endif /* TIDE_LOG_H */
