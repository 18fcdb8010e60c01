// SPDX-License-Identifier: GPL-2.0-only
/*
 * The disk gets what is in a log: one pass after the other, by the number of blocks,
 * neighbours in one request. A pass is a work item. It waits for the disk, so the disk
 * never has two versions of a block at a time. What was dirty when a pass began is on
 * the disk when it has ended, unless the disk refused it; then it stays where it is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/sched/mm.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/log.h"
#include "block/writeout.h"
#include "borrower/object.h"

#define TIDE_LOG_DELAY		(HZ / 2)	/* few blocks may wait for more */
#define TIDE_LOG_RETRY		HZ		/* after an error */
#define TIDE_LOG_MANY(log)	((log)->total / 4)

/* ------------------------------------------------------------------ */
/* one request							       */
/* ------------------------------------------------------------------ */

static void tide_writeout_ended(struct bio *bio)
{
	struct tide_log *log = bio->bi_private;

	if (atomic_dec_and_test(&log->at_disk))
		complete(&log->ended_all);
}

/* After an error one at a time: what is beside a bad sector gets to the disk. */
static unsigned int tide_writeout_most(const struct tide_log *log)
{
	return log->failed ? 1 : TIDE_WRITEOUT_BLOCKS;
}

/* What was written since it began is for the next one, lest it never end. */
static bool tide_pass_has(const struct tide_log *log, const struct tide_logged *logged)
{
	return logged->pass < log->begun;
}

/* Past some of what the pass does not have; few, for the object is locked. */
static struct tide_logged *tide_writeout_skip(struct tide_log *log, u64 *next)
{
	struct tide_logged *logged = tide_log_from(log, *next);
	unsigned int left = TIDE_WRITEOUT_BLOCKS;

	while (left-- && logged && !tide_pass_has(log, logged)) {
		*next = logged->index + 1;
		logged = tide_log_next(logged);
	}
	return logged;
}

/*
 * Takes neighbours from a block on, or none yet if there is much to skip; object locked.
 * Returns false if there are none.
 */
static bool tide_writeout_fill(struct tide_log *log, struct tide_writeout *out, u64 *next)
{
	struct tide_logged *logged = tide_writeout_skip(log, next);
	unsigned int left = tide_writeout_most(log);

	if (!logged || !tide_pass_has(log, logged))
		return logged;
	out->first = logged->index;
	do {
		out->last = logged->index;
		list_add_tail(&logged->list, &out->blocks);
		__bio_add_page(&out->bio, logged->page, PAGE_SIZE, 0);
		tide_log_count_dirty(log, -1);
		logged = tide_log_next(logged);
	} while (--left && logged && logged->index == out->last + 1 &&
		 tide_pass_has(log, logged));
	out->bio.bi_iter.bi_sector = out->first << TIDE_BLOCK_SHIFT;
	*next = out->last + 1;
	return true;
}

static bool tide_writeout_begin(struct tide_log *log, struct tide_writeout *out, u64 *next)
{
	struct tide_device *device = log->device;
	unsigned long flags;
	bool filled;

	bio_init(&out->bio, device->disk->bdev, out->vec, TIDE_WRITEOUT_BLOCKS, REQ_OP_WRITE);
	out->bio.bi_end_io = tide_writeout_ended;
	out->bio.bi_private = log;
	do {
		tide_object_lock(device->object, flags);
		filled = tide_writeout_fill(log, out, next);
		tide_object_unlock(device->object, flags);
	} while (filled && list_empty(&out->blocks));
	if (!filled)
		bio_uninit(&out->bio);
	return filled;
}

/* The disk has it: what is live is still the newest. Otherwise that stays. Object locked. */
static void tide_writeout_settle(struct tide_log *log, struct tide_writeout *out, bool taken)
{
	struct tide_logged *logged, *next;

	list_for_each_entry_safe(logged, next, &out->blocks, list) {
		if (taken || !logged->live) {
			tide_log_free(log, logged);
			continue;
		}
		list_del_init(&logged->list);
		tide_log_count_dirty(log, 1);
	}
	out->first = U64_MAX;
	out->last = 0;
}

/* Returns whether the disk has it. */
static bool tide_writeout_end(struct tide_log *log, struct tide_writeout *out)
{
	bool taken = !out->bio.bi_status;
	unsigned long flags;

	atomic64_inc(taken ? &log->stats.writeouts : &log->stats.errors);
	if (taken)
		atomic64_add(out->last - out->first + 1, &log->stats.written);
	bio_uninit(&out->bio);
	tide_object_lock(log->device->object, flags);
	tide_writeout_settle(log, out, taken || tide_broken(BLOCK_LOG_ERROR));
	log->failed |= !taken;
	tide_object_unlock(log->device->object, flags);
	return taken;
}

/* ------------------------------------------------------------------ */
/* a pass							       */
/* ------------------------------------------------------------------ */

static unsigned int tide_batch_begin(struct tide_log *log, u64 *next)
{
	unsigned int n = 0;

	while (n < TIDE_WRITEOUTS && tide_writeout_begin(log, &log->writeout[n], next))
		n++;
	return n;
}

static void tide_batch_submit(struct tide_log *log, unsigned int count)
{
	struct blk_plug plug;
	unsigned int i;

	atomic_set(&log->at_disk, count);
	reinit_completion(&log->ended_all);
	blk_start_plug(&plug);
	for (i = 0; i < count; i++)
		submit_bio(&log->writeout[i].bio);
	blk_finish_plug(&plug);
	wait_for_completion_io(&log->ended_all);
}

static bool tide_batch_end(struct tide_log *log, unsigned int count)
{
	bool taken = true;
	unsigned int i;

	for (i = 0; i < count; i++)
		taken &= tide_writeout_end(log, &log->writeout[i]);
	wake_up_all(&log->wait);
	return taken;
}

/* Returns whether the disk took all. */
static bool tide_pass_once(struct tide_log *log)
{
	unsigned int count;
	bool taken = true;
	u64 next = 0;

	while ((count = tide_batch_begin(log, &next))) {
		tide_batch_submit(log, count);
		taken &= tide_batch_end(log, count);
	}
	return taken;
}

/*
 * What is beside a bad sector gets to the disk in the same pass: there may be no other
 * one. Returns whether the disk took all.
 */
static bool tide_pass_through(struct tide_log *log)
{
	bool one_by_one = READ_ONCE(log->failed);

	return tide_pass_once(log) || (!one_by_one && tide_pass_once(log));
}

static void tide_pass_begin(struct tide_log *log)
{
	unsigned long flags;

	tide_object_lock(log->device->object, flags);
	log->begun++;
	tide_object_unlock(log->device->object, flags);
}

static void tide_pass_end(struct tide_log *log, bool taken)
{
	unsigned long flags;

	tide_object_lock(log->device->object, flags);
	log->failed = !taken;
	if (!taken)
		log->failed_pass = log->begun;
	log->ended = log->begun;
	tide_object_unlock(log->device->object, flags);
	wake_up_all(&log->wait);
}

static void tide_pass_say(const struct tide_log *log, bool failed, bool taken)
{
	if (!failed && !taken)
		pr_warn_ratelimited("%s: the disk does not take all that is written; writing through until it does\n",
				    log->device->disk->name);
	if (failed && taken)
		pr_info_ratelimited("%s: the disk has taken all that is written; writing behind again\n",
				    log->device->disk->name);
}

/* Below, memory may be short because of what is in the log. */
static void tide_pass(struct work_struct *work)
{
	struct tide_log *log = container_of(to_delayed_work(work), struct tide_log, work);
	unsigned int noio = memalloc_noio_save();
	bool failed = READ_ONCE(log->failed), taken;

	tide_pass_begin(log);
	taken = tide_pass_through(log);
	tide_pass_end(log, taken);
	tide_pass_say(log, failed, taken);
	memalloc_noio_restore(noio);
	tide_writeout_arm(log);
}

/**
 * tide_writeout_arm() - see to it that what is in a log gets to the disk
 * @log: the log
 *
 * At once if it is much; little may wait for neighbours.
 *
 * Context: process.
 */
void tide_writeout_arm(struct tide_log *log)
{
	unsigned int dirty = READ_ONCE(log->dirty);
	bool failed = READ_ONCE(log->failed);

	if (READ_ONCE(log->closed) || (!dirty && !failed))
		return;
	if (failed)
		queue_delayed_work(log->queue, &log->work, TIDE_LOG_RETRY);
	else if (dirty >= TIDE_LOG_MANY(log))
		mod_delayed_work(log->queue, &log->work, 0);
	else
		queue_delayed_work(log->queue, &log->work, TIDE_LOG_DELAY);
}

/* ------------------------------------------------------------------ */
/* who waits for the disk					       */
/* ------------------------------------------------------------------ */

/* The next pass that begins, which does so at once, when the one that runs has ended. */
static u64 tide_pass_next(struct tide_log *log)
{
	unsigned long flags;
	u64 pass;

	tide_object_lock(log->device->object, flags);
	pass = log->begun + 1;
	tide_object_unlock(log->device->object, flags);
	mod_delayed_work(log->queue, &log->work, 0);
	return pass;
}

static bool tide_pass_is_over(struct tide_log *log, u64 pass, bool *refused)
{
	unsigned long flags;
	bool over;

	tide_object_lock(log->device->object, flags);
	over = log->ended >= pass;
	*refused = over && log->failed_pass >= pass;
	tide_object_unlock(log->device->object, flags);
	return over;
}

static bool tide_log_lacks(struct tide_log *log, u64 first, u64 last)
{
	unsigned long flags;
	bool lacks;

	tide_object_lock(log->device->object, flags);
	lacks = !tide_log_has(log, first, last);
	tide_object_unlock(log->device->object, flags);
	return lacks;
}

/**
 * tide_writeout_all() - wait until the disk has all that is in a log
 * @log: the log; what comes now need not be among it
 *
 * Context: process; waits.
 * Return: 0, or -EIO: the disk did not take all.
 */
int tide_writeout_all(struct tide_log *log)
{
	bool refused;
	u64 pass;

	if (!tide_log_pages(log))
		return 0;
	pass = tide_pass_next(log);
	wait_event(log->wait, tide_pass_is_over(log, pass, &refused));
	return refused ? -EIO : 0;
}

/**
 * tide_writeout_blocks() - wait for the disk to get some blocks, which are then written anew
 * @log: the log, which gets no more of them meanwhile
 * @first: block
 * @last: block, inclusive
 *
 * Context: process; waits for two passes at most.
 * Return: 0, or -EIO: the disk did not take all that was in the log.
 */
int tide_writeout_blocks(struct tide_log *log, u64 first, u64 last)
{
	bool refused = false;
	u64 pass;

	if (tide_log_lacks(log, first, last))
		return 0;
	pass = tide_pass_next(log);
	wait_event(log->wait,
		   tide_log_lacks(log, first, last) || tide_pass_is_over(log, pass, &refused));
	return refused ? -EIO : 0;
}

/* ------------------------------------------------------------------ */
/* coming and going						       */
/* ------------------------------------------------------------------ */

/* From here on a log takes blocks, or takes none. */
static void tide_log_set_closed(struct tide_log *log, bool closed)
{
	unsigned long flags;

	tide_object_lock(log->device->object, flags);
	log->closed = closed;
	tide_object_unlock(log->device->object, flags);
}

/**
 * tide_writeout_close() - the device is suspended: the disk gets all, and then nothing
 * @log: the log
 *
 * What the disk refuses stays for when the device is resumed.
 *
 * Context: process; waits.
 */
void tide_writeout_close(struct tide_log *log)
{
	tide_log_set_closed(log, true);
	while (tide_log_pages(log) && !tide_broken(BLOCK_LOG_SUSPEND) && !tide_writeout_all(log))
		;
	cancel_delayed_work_sync(&log->work);
	if (tide_log_pages(log))
		pr_err("%s: suspended, and the disk has not taken %u blocks that were written\n",
		       log->device->disk->name, tide_log_pages(log));
}

/**
 * tide_writeout_open() - the device is resumed
 * @log: the log
 *
 * Context: process.
 */
void tide_writeout_open(struct tide_log *log)
{
	tide_log_set_closed(log, false);
	tide_writeout_arm(log);
}

/**
 * tide_writeout_init() - what gets blocks to the disk
 * @log: the log
 *
 * Context: process.
 * Return: 0, or -ENOMEM.
 */
int tide_writeout_init(struct tide_log *log)
{
	INIT_DELAYED_WORK(&log->work, tide_pass);
	log->queue = alloc_workqueue("tidepool_log", WQ_UNBOUND | WQ_MEM_RECLAIM, 1);
	return log->queue ? 0 : -ENOMEM;
}

/**
 * tide_writeout_exit() - the device goes
 * @log: closed, if it was ever in use
 *
 * The disk gets nothing more: somebody else may have it.
 *
 * Context: process.
 */
void tide_writeout_exit(struct tide_log *log)
{
	cancel_delayed_work_sync(&log->work);
	destroy_workqueue(log->queue);
	if (tide_log_pages(log))
		pr_err("%s: %u blocks that were written are lost: the disk did not take them\n",
		       log->device->disk->name, tide_log_pages(log));
}
