// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device-mapper target over any block device, whose blocks of 4 KiB are in the pool
 * as a file's pages are (REMOCA; TCC 2022):
 *
 *	0 SECTORS tidepool LENDER DEVICE [writethrough | behind [LOG_MIB]]
 *
 * What is no whole block, or does not lie in whole pages, goes to the disk alone. Where
 * reclaim may wait, which is everywhere here, nothing is allocated and nothing waits
 * for a lender longer than the deadline of its requests.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "base/broken.h"
#include "base/compat.h"
#include "block/behind.h"
#include "block/claim.h"
#include "block/device.h"
#include "block/ghost.h"
#include "block/io.h"
#include "block/log.h"
#include "block/reads.h"
#include "block/spans.h"
#include "block/writeout.h"
#include "block/writes.h"
#include "borrower/catalog.h"
#include "borrower/disk_latency.h"

#define TIDE_ANY_LENDER		"-"
#define TIDE_THROUGH		"writethrough"
#define TIDE_BEHIND		"behind"
#define TIDE_ARGUMENTS		"LENDER DEVICE [writethrough | behind [LOG_MIB]]"

/* ------------------------------------------------------------------ */
/* reads and writes						       */
/* ------------------------------------------------------------------ */

/* Returns whether that is all there is to do for a bio; it may have been cut. */
static bool tide_device_is_logged(struct tide_io *io, bool changes)
{
	if (!io->device->log)
		return false;
	return changes ? tide_behind_write(io) : tide_behind_read(io);
}

static int tide_device_map(struct dm_target *ti, struct bio *bio)
{
	bool changes = op_is_write(bio_op(bio)), flush = bio->bi_opf & REQ_PREFLUSH;
	struct tide_io *io = tide_io_of(bio);

	bio->bi_iter.bi_sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	tide_io_begin(io, ti->private, bio);
	if (flush && io->device->log && tide_behind_flush(io->device))
		return DM_MAPIO_KILL;
	if (io->device->log && tide_behind_refuses(io))
		return DM_MAPIO_KILL;
	if (bio_sectors(bio) && tide_device_is_logged(io, changes))
		return DM_MAPIO_SUBMITTED;
	if (bio_sectors(bio) && changes)
		return tide_io_write(io);
	if (io->whole)
		return tide_io_read(io);
	bio_set_dev(bio, io->device->disk->bdev);	/* part of a block, or a flush */
	return DM_MAPIO_REMAPPED;
}

static int tide_device_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct tide_io *io = tide_io_of(bio);
	bool failed = *error && !tide_broken(BLOCK_ERROR);

	if (!io->at_disk)
		return DM_ENDIO_DONE;
	if (io->sampled && !*error)
		tide_disk_took(tide_size(tide_io_blocks(io)),
			       ktime_to_ns(ktime_sub(ktime_get(), io->start)));
	if (io->whole && !failed)
		tide_io_put(io);
	tide_span_leave(io->device, &io->span);
	return DM_ENDIO_DONE;
}

/* ------------------------------------------------------------------ */
/* coming and going						       */
/* ------------------------------------------------------------------ */

static void tide_device_free(struct dm_target *ti, struct tide_device *device)
{
	if (tide_ghost_is_on())
		tide_device_ghost_gone(device);
	if (device->log)
		tide_behind_destroy(device);
	if (device->object)
		tide_object_destroy(device->object);
	tide_unclaim(device);
	if (device->disk)
		dm_put_device(ti, device->disk);
	kfree(device);
}

/* A lender's name, which need not be there yet; returns what is wrong, or NULL. */
static char *tide_device_set_lender(struct tide_device *device, const char *name)
{
	if (!strcmp(name, TIDE_ANY_LENDER))
		return NULL;
	if (!*name || strchr(name, '/') || strscpy(device->lender, name, TIDE_NAME_MAX) < 0)
		return "LENDER must be - (any), or the name of a folder in lenders/";
	return NULL;
}

/* Device-mapper itself does not look. */
static bool tide_device_is_read_only(const struct dm_target *ti, const struct tide_device *device)
{
	return (dm_table_get_mode(ti->table) & BLK_OPEN_WRITE) &&
	       bdev_read_only(device->disk->bdev);
}

/* [writethrough | behind [LOG_MIB]]; @mib is 0 for the first. Returns what is wrong, or NULL. */
static char *tide_device_policy(unsigned int argc, char **argv, unsigned int *mib)
{
	bool behind = argc && !strcmp(argv[0], TIDE_BEHIND);

	*mib = behind ? TIDE_LOG_MIB : 0;
	if (argc > 1 + behind || (argc && !behind && strcmp(argv[0], TIDE_THROUGH)))
		return "the arguments must be: " TIDE_ARGUMENTS;
	if (argc < 2)
		return NULL;
	if (kstrtouint(argv[1], 10, mib) || !*mib || *mib > TIDE_LOG_MIB_MOST)
		return "LOG_MIB must be 1 to " __stringify(TIDE_LOG_MIB_MOST);
	return NULL;
}

/* Returns what is wrong, or NULL. */
static char *tide_device_set_log(struct dm_target *ti, struct tide_device *device,
				 unsigned int mib)
{
	if (!mib)
		return NULL;
	ti->flush_supported = true;	/* whatever the disk has */
	switch (tide_behind_create(device, mib)) {
	case 0:
		return NULL;
	case -EDQUOT:
		return "LOG_MIB, of all tables there are, is more than a quarter of memory";
	default:
		return "there is no memory for the log";
	}
}

/* Returns what is wrong, or NULL. */
static char *tide_device_fill(struct dm_target *ti, struct tide_device *device, char **argv,
			      unsigned int mib, int *err)
{
	char *wrong = tide_device_set_lender(device, argv[0]);

	if (wrong)
		return wrong;
	*err = dm_get_device(ti, argv[1], dm_table_get_mode(ti->table), &device->disk);
	if (*err)
		return "DEVICE cannot be opened, or something else has it";
	*err = -EBUSY;
	wrong = tide_claim(ti, device);
	if (wrong)
		return wrong;
	*err = -EROFS;
	if (tide_device_is_read_only(ti, device))
		return "DEVICE is read-only; so must be what lies on it";
	*err = -EINVAL;
	if (ti->len > bdev_nr_sectors(device->disk->bdev))
		return "DEVICE is smaller than that";
	*err = dm_set_target_max_io_len(ti, TIDE_BIO_BLOCKS << TIDE_BLOCK_SHIFT);
	if (*err)
		return "the length of requests cannot be limited";
	*err = -ENOMEM;
	device->object = tide_object_create(device->disk->bdev->bd_dev);
	if (!device->object)
		return "there is no memory";
	return tide_device_set_log(ti, device, mib);
}

static int tide_device_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct tide_device *device;
	unsigned int mib = 0;
	int err = -EINVAL;

	ti->error = argc < 2 ? "the arguments must be: " TIDE_ARGUMENTS :
			       tide_device_policy(argc - 2, argv + 2, &mib);
	if (ti->error)
		return -EINVAL;
	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device) {
		ti->error = "there is no memory";
		return -ENOMEM;
	}
	device->spans = RB_ROOT_CACHED;
	ti->error = tide_device_fill(ti, device, argv, mib, &err);
	if (ti->error) {
		tide_device_free(ti, device);
		return err;
	}
	ti->private = device;
	ti->per_io_data_size = TIDE_IO_SIZE;
	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	ti->num_secure_erase_bios = 1;
	ti->num_write_zeroes_bios = 1;
	return 0;
}

static void tide_device_dtr(struct dm_target *ti)
{
	tide_device_free(ti, ti->private);
}

/* The disk gets what is in the log, and nothing after that. */
static void tide_device_postsuspend(struct dm_target *ti)
{
	struct tide_device *device = ti->private;

	if (device->log)
		tide_writeout_close(device->log);
}

/* While it was suspended, somebody may have changed the disk below it. */
static int tide_device_preresume(struct dm_target *ti)
{
	struct tide_device *device = ti->private;

	if (!tide_broken(BLOCK_RESUME))
		tide_device_forget(ti->private);
	if (device->log)
		tide_writeout_open(device->log);
	tide_set_stable_writes(dm_disk(dm_table_get_md(ti->table))->queue);
	return 0;
}

static int tide_device_iterate(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct tide_device *device = ti->private;

	return fn(ti, device->disk, 0, ti->len, data);
}

/* What is being written stays as it is meanwhile, so that disk and lender get the same. */
static void tide_device_hints(struct dm_target *ti, struct queue_limits *limits)
{
	limits->io_opt = max_t(unsigned int, limits->io_opt, PAGE_SIZE);
	tide_hint_stable_writes(limits);
}

/* ------------------------------------------------------------------ */
/* what it says							       */
/* ------------------------------------------------------------------ */

struct tide_counter {
	const char *name;
	const atomic64_t *value;
};

static size_t tide_device_counters(const struct tide_device_stats *stats, char *result,
				   unsigned int maxlen)
{
	const struct tide_counter counter[] = {
		{ "hits", &stats->hits },
		{ "misses", &stats->misses },
		{ "fallbacks", &stats->fallbacks },
		{ "partial", &stats->partial },
		{ "puts", &stats->puts },
		{ "drops", &stats->drops },
	};
	size_t i, sz = 0;

	for (i = 0; i < ARRAY_SIZE(counter); i++)
		DMEMIT("%s%s %lld", i ? " " : "", counter[i].name,
		       (s64)atomic64_read(counter[i].value));
	return sz;
}

static size_t tide_log_counters(const struct tide_log *log, char *result, unsigned int maxlen)
{
	const struct tide_counter counter[] = {
		{ "log_reads", &log->stats.reads },
		{ "log_written", &log->stats.written },
		{ "log_writeouts", &log->stats.writeouts },
		{ "log_full", &log->stats.full },
		{ "log_errors", &log->stats.errors },
	};
	size_t i, sz = 0;

	DMEMIT(" log_pages %u log_refused %d", tide_log_pages(log), READ_ONCE(log->failed));
	for (i = 0; i < ARRAY_SIZE(counter); i++)
		DMEMIT(" %s %lld", counter[i].name, (s64)atomic64_read(counter[i].value));
	return sz;
}

/* As in the table: the size of the log is in it even if that was not said. */
static void tide_device_say_policy(const struct tide_device *device, char *policy, size_t size)
{
	if (device->log)
		snprintf(policy, size, TIDE_BEHIND " %u", device->log->total >> (20 - PAGE_SHIFT));
	else
		strscpy(policy, TIDE_THROUGH, size);
}

static void tide_device_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			       char *result, unsigned int maxlen)
{
	const struct tide_device *device = ti->private;
	const char *lender = *device->lender ? device->lender : TIDE_ANY_LENDER;
	char policy[sizeof(TIDE_BEHIND) + 12];
	size_t sz = 0;

	tide_device_say_policy(device, policy, sizeof(policy));
	switch (type) {
	case STATUSTYPE_INFO:
		sz = tide_device_counters(&device->stats, result, maxlen);
		if (device->log)
			tide_log_counters(device->log, result + sz, maxlen - sz);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %s %s", lender, device->disk->name, policy);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",lender=%s,device=%s,policy=%s;", lender, device->disk->name, policy);
		break;
	}
}

static int tide_device_message(struct dm_target *ti, unsigned int argc, char **argv,
			       char *result, unsigned int maxlen)
{
	if (argc != 1 || strcmp(argv[0], "forget")) {
		pr_err("the only message there is: forget\n");
		return -EINVAL;
	}
	tide_device_forget(ti->private);
	return 0;
}

static struct target_type tide_target = {
	.name = "tidepool",
	.version = { 1, 1, 0 },
	.module = THIS_MODULE,
	.ctr = tide_device_ctr,
	.dtr = tide_device_dtr,
	.map = tide_device_map,
	.end_io = tide_device_end_io,
	.postsuspend = tide_device_postsuspend,
	.preresume = tide_device_preresume,
	.status = tide_device_status,
	.message = tide_device_message,
	.iterate_devices = tide_device_iterate,
	.io_hints = tide_device_hints,
};

static int __init tide_block_init(void)
{
	return dm_register_target(&tide_target);
}

static void __exit tide_block_exit(void)
{
	dm_unregister_target(&tide_target);
	/* What ended the last read, work item or receiving thread, has come back from it. */
	flush_workqueue(tide_disk_queue);
	synchronize_rcu_tasks();
}

module_init(tide_block_init);
module_exit(tide_block_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(TIDEPOOL_VERSION);
MODULE_AUTHOR("Tidepool");
MODULE_DESCRIPTION("Block device whose blocks live in another machine's unused memory as well");
MODULE_ALIAS("dm-tidepool");
