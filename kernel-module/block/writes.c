// SPDX-License-Identifier: GPL-2.0-only
/*
 * Write-through, as in REMOCA: a change drops what the pool has of its blocks and goes
 * to the disk, and is over when the disk says so. What was written is then the disk's
 * and goes to a lender as well.
 *
 * REMOCA takes a block in when it leaves the guest's memory, for what the guest has
 * just read is in memory. Of what leaves memory a block device sees only what is
 * written. So with Exclusive what was read is not put, and a hit leaves the lender. With
 * NonInclusive what is read is in the pool as well: a hit stays, and what missed is put
 * when it has been read into the page cache. That is for swap, too: a page that was read
 * back and not changed leaves memory unwritten.
 */
#include <linux/bio.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>

#include "base/broken.h"
#include "block/device.h"
#include "block/ghost.h"
#include "block/io.h"
#include "block/spans.h"
#include "block/writes.h"
#include "borrower/buffers.h"
#include "borrower/catalog_pages.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"
#include "borrower/send_pages.h"

/* A change that the test's module does not see. */
static bool tide_change_missed(struct tide_io *io)
{
	return bio_op(tide_io_bio(io)) == REQ_OP_WRITE ? tide_broken(BLOCK_WRITE) :
							 tide_broken(BLOCK_DISCARD);
}

/**
 * tide_io_changes() - what the pool has of a bio's blocks is what they were
 * @io: of a bio that changes them; its span is entered
 *
 * Context: process; does not wait.
 */
void tide_io_changes(struct tide_io *io)
{
	if (!tide_change_missed(io))
		tide_object_drop(io->device->object, io->span.first, io->span.last);
	if (tide_ghost_is_on())
		tide_io_ghost_changed(io);
}

/**
 * tide_io_write() - begin to change blocks on the disk: write, discard or zero them
 * @io: of a bio that does
 *
 * Context: process; does not wait, but for what the log has of the blocks.
 * Return: as a target's map.
 */
int tide_io_write(struct tide_io *io)
{
	int ret = tide_io_to_disk(io, true);

	if (ret == DM_MAPIO_REMAPPED)
		tide_io_changes(io);
	return ret;
}

/* Takes one block into a buffer, unless something has changed it meanwhile. */
static bool tide_block_put(struct tide_io *io, struct tide_lender *lender, struct page *page,
			   u64 index)
{
	struct tide_object *object = io->device->object;
	struct tide_buffer *buffer;
	bool queued = false;
	unsigned long flags;
	LIST_HEAD(taken);

	if (!tide_buffers_take(1, &taken)) {
		atomic64_inc(&lender->stats.drop_nobuffer);
		return false;
	}
	buffer = list_first_entry(&taken, struct tide_buffer, list);
	list_del_init(&buffer->list);
	tide_object_lock(object, flags);
	if (io->span.mixed || !tide_pool_lacks(object, index))
		tide_buffer_free(buffer);
	else
		queued = tide_put_page(object, lender, page, index, buffer);
	tide_object_unlock(object, flags);
	return queued;
}

/* In an RCU read section; NULL: none takes what this bio read or wrote. */
static struct tide_lender *tide_io_taker(const struct tide_io *io)
{
	struct tide_refusal why = { };
	struct tide_lender *lender;

	lender = tide_choose_lender(*io->device->lender ? io->device->lender : NULL, 0, &why);
	if (lender && !io->span.changes && lender->config.strategy == TIDE_EXCLUSIVE)
		return NULL;
	if (!lender && why.counter)
		this_cpu_add(*why.counter, tide_io_blocks(io));
	return lender;
}

/**
 * tide_io_put() - the disk, or the log, has what is in the bio's pages
 * @io: of whole blocks; its span has not been left
 *
 * Context: any; allocates nothing and does not wait.
 */
void tide_io_put(struct tide_io *io)
{
	unsigned int puts = 0, blocks = tide_io_blocks(io);
	u64 index = tide_io_first(io);
	struct tide_lender *lender;
	struct bvec_iter iter;
	struct bio_vec bv;

	rcu_read_lock();
	lender = tide_io_taker(io);
	if (lender) {
		__bio_for_each_segment(bv, tide_io_bio(io), iter, io->iter) {
			puts += (io->span.changes || tide_page_is_read_alone(bv.bv_page)) &&
				tide_block_put(io, lender, bv.bv_page, index);
			index++;
		}
		if (puts)
			wake_up(&lender->put_wait);
	}
	rcu_read_unlock();
	atomic64_add(puts, &io->device->stats.puts);
	if (lender || io->span.changes)
		atomic64_add(blocks - puts, &io->device->stats.drops);
}

/**
 * tide_device_forget() - forget all that the pool has of a device
 * @device: the device
 *
 * What is being read or written is not put, either.
 *
 * Context: process.
 */
void tide_device_forget(struct tide_device *device)
{
	struct tide_span all = { .last = U64_MAX, .changes = true };

	tide_span_enter(device, &all);
	tide_object_drop(device->object, 0, ULONG_MAX);
	if (tide_ghost_is_on())
		tide_device_ghost_gone(device);
	tide_span_leave(device, &all);
}
