// SPDX-License-Identifier: GPL-2.0-only
/* Notes for a lender on pages that it may drop; outbox.c sends them. */
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "borrower/disk_latency.h"
#include "borrower/forgets.h"
#include "borrower/object.h"
#include "borrower/peer.h"
#include "borrower/versions.h"
#include "uapi/wire.h"

/* The note, one of the newest two, that ends where pages begin; or NULL. */
static struct tide_forget_item *tide_forget_before(struct tide_lender *lender,
						   const struct tide_object *object,
						   pgoff_t first)
{
	unsigned int back, waiting = lender->forget_head - lender->forget_tail;

	for (back = 1; back <= min(waiting, 2U); back++) {
		struct tide_forget_item *item;

		item = &lender->forget[(lender->forget_head - back) % TIDE_FORGET_RING];
		if (item->file == cpu_to_le64(object->id) && le64_to_cpu(item->last) + 1 == first)
			return item;
	}
	return NULL;
}

/*
 * Who changes a value time after time leaves one page behind the other: one note for all
 * of them. There are two such rows, for what is dropped on its way is noted when it has
 * arrived. Where an index is used again, what is there now may be what was put since.
 */
static bool tide_forget_extend(struct tide_lender *lender, const struct tide_object *object,
			       pgoff_t first, pgoff_t last)
{
	struct tide_forget_item *item;

	item = object->once ? tide_forget_before(lender, object, first) : NULL;
	if (!item)
		return false;
	item->last = cpu_to_le64(last);
	item->before = cpu_to_le64(tide_next_version());
	return true;
}

static void tide_forget_add(struct tide_lender *lender, const struct tide_object *object,
			    pgoff_t first, pgoff_t last)
{
	lender->forget[lender->forget_head++ % TIDE_FORGET_RING] = (struct tide_forget_item) {
		.file = cpu_to_le64(object->id),
		.first = cpu_to_le64(first),
		.last = cpu_to_le64(last),
		.before = cpu_to_le64(tide_next_version()),
	};
}

/**
 * tide_forget() - note that a lender's pages are of no use any more
 * @slot: of the lender
 * @object: whose they are
 * @first: first page index
 * @last: last page index, inclusive
 *
 * A hint only: notes that find no room are lost, and the lender will recycle
 * those pages when they are its oldest.
 *
 * Context: any.
 */
void tide_forget(int slot, const struct tide_object *object, pgoff_t first, pgoff_t last)
{
	struct tide_lender *lender;
	unsigned int waiting;
	unsigned long flags;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (!lender || !READ_ONCE(lender->session))
		goto out;
	spin_lock_irqsave(&lender->forget_lock, flags);
	waiting = lender->forget_head - lender->forget_tail;
	if (!tide_forget_extend(lender, object, first, last) && waiting < TIDE_FORGET_RING)
		tide_forget_add(lender, object, first, last);
	spin_unlock_irqrestore(&lender->forget_lock, flags);
	if (waiting == TIDE_FORGET_RING / 2)	/* else the tick sends them */
		queue_work(tide_disk_queue, &lender->lane[0].tx_work);
out:
	rcu_read_unlock();
}

/**
 * tide_forget_nothing() - there is nothing any more that a lender could drop
 * @lender: its session is over
 *
 * Context: process.
 */
void tide_forget_nothing(struct tide_lender *lender)
{
	spin_lock_irq(&lender->forget_lock);
	lender->forget_tail = lender->forget_head;
	spin_unlock_irq(&lender->forget_lock);
}

/**
 * tide_forget_prepare() - allocate room for notes
 * @lender: being created
 *
 * Return: 0 or -ENOMEM.
 */
int tide_forget_prepare(struct tide_lender *lender)
{
	spin_lock_init(&lender->forget_lock);
	lender->forget = kvcalloc(TIDE_FORGET_RING, sizeof(*lender->forget), GFP_KERNEL);
	return lender->forget ? 0 : -ENOMEM;
}

void tide_forget_release(struct tide_lender *lender)
{
	kvfree(lender->forget);
}
