// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk belongs to one mapped device. Device-mapper lets all of its devices share one;
 * but what goes to a disk past ours is then read as it was before.
 */
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/list.h>
#include <linux/mutex.h>

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

/**
 * tide_claim() - note that a device has its disk
 * @ti: the target
 * @device: its disk is open
 *
 * Return: whether no other mapped device has that disk, nor another line of this table.
 * The device's next table may.
 *
 * Context: process; may sleep.
 */
bool tide_claim(struct dm_target *ti, struct tide_device *device)
{
	struct block_device *disk = device->disk->bdev;
	bool free;

	mutex_lock(&tide_claims_lock);
	free = READ_ONCE(disk->bd_holders) <=
	       tide_claim_holders(ti, device) * tide_claim_weight(disk);
	if (free) {
		device->table = ti->table;
		list_add(&device->claim, &tide_claims);
	}
	mutex_unlock(&tide_claims_lock);
	return free;
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
