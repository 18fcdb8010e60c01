// SPDX-License-Identifier: GPL-2.0-only
/* Notes for a lender on pages that it may drop; outbox.c sends them. */
#include <linux/slab.h>

#include "borrower/forgets.h"
#include "borrower/peer.h"
#include "borrower/versions.h"
#include "uapi/wire.h"

/**
 * tide_forget() - note that a lender's pages are of no use any more
 * @slot: of the lender
 * @file: the file's name on the wire
 * @first: first page index
 * @last: last page index, inclusive
 *
 * A hint only: notes that find no room are lost, and the lender will recycle
 * those pages when they are its oldest.
 *
 * Context: any.
 */
void tide_forget(int slot, u64 file, pgoff_t first, pgoff_t last)
{
	struct tide_lender *lender;
	unsigned long flags;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (!lender || !READ_ONCE(lender->session))
		goto out;
	spin_lock_irqsave(&lender->forget_lock, flags);
	if (lender->forget_head - lender->forget_tail < TIDE_FORGET_RING) {
		lender->forget[lender->forget_head++ % TIDE_FORGET_RING] =
			(struct tide_forget_item) {
				.file = cpu_to_le64(file),
				.first = cpu_to_le64(first),
				.last = cpu_to_le64(last),
				.before = cpu_to_le64(tide_next_version()),
			};
	}
	spin_unlock_irqrestore(&lender->forget_lock, flags);
out:
	rcu_read_unlock();	/* the tick sends them */
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
