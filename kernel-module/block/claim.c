// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk belongs to one mapped device. Device-mapper lets all of its devices share one,
 * and the kernel has two partitions where their table says so, even in the same place;
 * but what goes to a disk past ours is then read as it was before.
 */
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/xarray.h>

#include "block/claim.h"
#include "block/device.h"

static DEFINE_MUTEX(tide_claims_lock);
static LIST_HEAD(tide_claims);

/* Who claims a whole disk holds it twice: as what was claimed, and as what that is part of. */
static int tide_claim_weight(struct block_device *disk)
{
	return bdev_is_partition(disk) ? 1 : 2;
}

/*
 * How often ours has the disk open: once for reading and once for both, if it gets
 * another table that differs in that. Nothing, if a line of the same table has it.
 */
static int tide_claim_holders(const struct dm_target *ti, const struct tide_device *device)
{
	const struct tide_device *other;
	int holders = 1;

	list_for_each_entry(other, &tide_claims, claim) {
		if (other->disk->bdev != device->disk->bdev)
			continue;
		if (other->table == ti->table)
			return 0;
		if (dm_table_get_md(other->table) == dm_table_get_md(ti->table) &&
		    other->disk != device->disk)
			holders = 2;
	}
	return holders;
}

static bool tide_claim_is_shared(const struct dm_target *ti, const struct tide_device *device)
{
	struct block_device *disk = device->disk->bdev;

	return READ_ONCE(disk->bd_holders) >
	       tide_claim_holders(ti, device) * tide_claim_weight(disk);
}

static bool tide_partitions_meet(struct block_device *one, struct block_device *other)
{
	return get_start_sect(one) < get_start_sect(other) + bdev_nr_sectors(other) &&
	       get_start_sect(other) < get_start_sect(one) + bdev_nr_sectors(one);
}

/* Has somebody another partition of which sectors are the disk's, too? */
static bool tide_claim_is_overlapped(struct block_device *disk)
{
	struct block_device *other;
	bool overlapped = false;
	unsigned long number;

	if (!bdev_is_partition(disk))
		return false;		/* who has the whole has it alone */
	rcu_read_lock();
	xa_for_each_start(&disk->bd_disk->part_tbl, number, other, 1)	/* 0 is the whole */
		overlapped |= other != disk && READ_ONCE(other->bd_holders) &&
			      tide_partitions_meet(disk, other);
	rcu_read_unlock();
	return overlapped;
}

static char *tide_claim_locked(struct dm_target *ti, struct tide_device *device)
{
	if (tide_claim_is_shared(ti, device))
		return "DEVICE is another mapping's already";
	if (tide_claim_is_overlapped(device->disk->bdev))
		return "DEVICE overlaps another partition, which is in use";
	device->table = ti->table;
	list_add(&device->claim, &tide_claims);
	return NULL;
}

/**
 * tide_claim() - note that a device has its disk
 * @ti: the target
 * @device: its disk is open
 *
 * No other mapped device may have that disk, nor another line of this table. The device's
 * next table may.
 *
 * Context: process; may sleep.
 * Return: what is wrong, or NULL.
 */
char *tide_claim(struct dm_target *ti, struct tide_device *device)
{
	char *wrong;

	mutex_lock(&tide_claims_lock);
	wrong = tide_claim_locked(ti, device);
	mutex_unlock(&tide_claims_lock);
	return wrong;
}

/**
 * tide_unclaim() - forget that a device has its disk
 * @device: which claimed it, or did not
 *
 * Context: process; may sleep.
 */
void tide_unclaim(struct tide_device *device)
{
	mutex_lock(&tide_claims_lock);
	if (device->table)
		list_del(&device->claim);
	mutex_unlock(&tide_claims_lock);
}
