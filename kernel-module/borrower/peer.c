// SPDX-License-Identifier: GPL-2.0-only
/* The lenders in their slots: who is asked, who takes pages, and what breaks with one. */
#include <linux/export.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>

#include "borrower/breaker_state.h"
#include "borrower/lane.h"
#include "borrower/peer.h"
#include "transport/handshake.h"
#include "transport/tcp.h"

struct tide_lender __rcu *tide_lenders[TIDE_MAX_LENDERS];
atomic_t tide_lenders_ready = ATOMIC_INIT(0);
unsigned int tide_lenders_enabled;		/* slots that are taken */

static void tide_lender_released(struct kref *kref)
{
	complete(&container_of(kref, struct tide_lender, kref)->released);
}

/**
 * tide_lender_at() - the lender of a slot, if it may be asked now
 * @slot: as a catalog entry names it
 *
 * Context: any.
 * Return: the lender with a reference taken, or NULL.
 */
struct tide_lender *tide_lender_at(int slot)
{
	struct tide_lender *lender;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (!tide_lender_usable(lender) || !kref_get_unless_zero(&lender->kref))
		lender = NULL;
	rcu_read_unlock();
	return lender;
}
EXPORT_SYMBOL_GPL(tide_lender_at);

/**
 * tide_lender_unasked() - count pages that are read from disk, for their lender cannot be asked
 * @slot: as a catalog entry names it; negative: there is no lender
 * @pages: how many
 *
 * Context: any.
 */
void tide_lender_unasked(int slot, unsigned int pages)
{
	struct tide_lender *lender;

	if (slot < 0)
		return;
	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender)
		atomic64_add(pages, &lender->stats.get_unasked);
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(tide_lender_unasked);

void tide_lender_put(struct tide_lender *lender)
{
	kref_put(&lender->kref, tide_lender_released);
}
EXPORT_SYMBOL_GPL(tide_lender_put);

/**
 * tide_lenders_take_puts() - is there a lender that pages go to?
 * @diskless: that are on no disk
 *
 * One that does not answer in time for the moment counts as well.
 *
 * Context: any.
 */
bool tide_lenders_take_puts(bool diskless)
{
	struct tide_lender *lender;
	bool take = false;
	int slot;

	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		take |= lender && READ_ONCE(lender->ready) &&
			!tide_lender_avoided(lender, diskless);
	}
	rcu_read_unlock();
	return take;
}
EXPORT_SYMBOL_GPL(tide_lenders_take_puts);

static void tide_link_shut(struct tide_link *link)
{
	tide_wire_shut(link->wire);
}

/**
 * tide_lender_break() - end all connections to a lender
 * @lender: the lender
 *
 * The receiving threads notice, and the main one does the rest. The session can go on.
 *
 * Context: process.
 */
void tide_lender_break(struct tide_lender *lender)
{
	unsigned int i;

	mutex_lock(&lender->wire_mutex);
	for (i = 0; i < lender->lanes; i++)
		tide_link_shut(&lender->lane[i].link);
	tide_link_shut(&lender->put);
	mutex_unlock(&lender->wire_mutex);
}

const char *tide_lender_state_name(const struct tide_lender *lender)
{
	switch (READ_ONCE(lender->state)) {
	case TIDE_LENDER_CONNECTING:
		return "Connecting";
	case TIDE_LENDER_CONNECTED:
		return "Connected";
	case TIDE_LENDER_REJECTED:
		return "Rejected";
	default:
		return "Disabled";
	}
}

/**
 * tide_lender_reason() - why there is no session
 * @lender: the lender
 *
 * Return: one word that ABI.md explains, or nothing.
 */
const char *tide_lender_reason(const struct tide_lender *lender)
{
	return tide_reasons[READ_ONCE(lender->reason)];
}
