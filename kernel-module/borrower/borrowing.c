// SPDX-License-Identifier: GPL-2.0-only
/*
 * From whom this guest borrows: what is configured for each lender, from when it is
 * made until it is gone, and the slots of those that are enabled. What goes on with one
 * is session.c's.
 */
#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/slab.h>

#include "base/identity.h"
#include "borrower/borrowing.h"
#include "borrower/breaker.h"
#include "borrower/catalog_ages.h"
#include "borrower/epochs.h"
#include "borrower/fetch.h"
#include "borrower/filter.h"
#include "borrower/forgets.h"
#include "borrower/lane.h"
#include "borrower/outbox.h"
#include "borrower/peer.h"
#include "borrower/send_pages.h"
#include "borrower/session.h"
#include "uapi/wire.h"

static DEFINE_MUTEX(tide_slots_mutex);

/* The session ends, and does not go on. */
static void tide_lender_renounce(struct tide_lender *lender)
{
	WRITE_ONCE(lender->renounced, true);
	tide_lender_break(lender);
}

/**
 * tide_lenders_renounce() - end the sessions with all lenders, for good
 *
 * Context: process.
 */
void tide_lenders_renounce(void)
{
	struct tide_lender *lender;
	int slot;

	mutex_lock(&tide_slots_mutex);
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference_protected(tide_lenders[slot],
						   lockdep_is_held(&tide_slots_mutex));
		if (lender)
			tide_lender_renounce(lender);
	}
	mutex_unlock(&tide_slots_mutex);
}

/* ------------------------------------------------------------------ */
/* life of a lender						       */
/* ------------------------------------------------------------------ */

/* A lane for each processor there may be, up to TIDE_MAX_LANES. */
static int tide_lanes_prepare(struct tide_lender *lender)
{
	unsigned int i;
	int err = 0;

	lender->lanes = min_t(unsigned int, num_possible_cpus(), TIDE_MAX_LANES);
	for (i = 0; i < lender->lanes && !err; i++) {
		lender->lane[i].lender = lender;
		lender->lane[i].number = i;
		err = tide_get_prepare(&lender->lane[i]);
	}
	return err;
}

static void tide_lanes_release(struct tide_lender *lender)
{
	unsigned int i;

	for (i = 0; i < lender->lanes; i++)
		tide_get_release(&lender->lane[i]);
}

/**
 * tide_lender_create() - a lender that is configured but not enabled
 * @name: of the pairing
 *
 * Return: the lender or an error pointer.
 */
struct tide_lender *tide_lender_create(const char *name)
{
	struct tide_lender *lender = kzalloc(sizeof(*lender), GFP_KERNEL);

	if (!lender)
		return ERR_PTR(-ENOMEM);
	strscpy(lender->name, name, sizeof(lender->name));
	lender->slot = -1;
	lender->config.port = TIDE_PORT;
	lender->config.deadline_us = 200 * USEC_PER_MSEC;
	lender->config.breaker_short = (struct tide_thresholds) {
		.resume_us = 1500, .stop_us = 40000,
	};
	lender->config.breaker_long = (struct tide_thresholds) {
		.resume_us = 1000, .stop_us = 1500,
	};
	spin_lock_init(&lender->breaker.lock);
	tide_ages_init(&lender->ages);
	mutex_init(&lender->wire_mutex);
	mutex_init(&lender->lane_mutex);
	INIT_DELAYED_WORK(&lender->tick, tide_session_tick);
	mutex_init(&lender->put.tx_mutex);
	if (tide_lanes_prepare(lender) || tide_forget_prepare(lender) ||
	    tide_put_prepare(lender)) {
		tide_lender_destroy(lender);
		return ERR_PTR(-ENOMEM);
	}
	return lender;
}

/* Is another enabled one this guest? Under tide_control_mutex, so that it stays like this. */
static bool tide_identity_taken(const struct tide_lender *lender,
				const struct tide_identity *identity)
{
	const struct tide_lender *other;
	bool taken = false;
	int slot;

	mutex_lock(&tide_slots_mutex);
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		other = rcu_dereference_protected(tide_lenders[slot],
						  lockdep_is_held(&tide_slots_mutex));
		taken |= other && other != lender &&
			 tide_identity_is(&other->config.identity, identity);
	}
	mutex_unlock(&tide_slots_mutex);
	return taken;
}

static int tide_slot_take(struct tide_lender *lender)
{
	int slot, err = -ENOSPC;

	mutex_lock(&tide_slots_mutex);
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		if (rcu_access_pointer(tide_lenders[slot]))
			continue;
		lender->slot = slot;
		rcu_assign_pointer(tide_lenders[slot], lender);
		WRITE_ONCE(tide_lenders_enabled, tide_lenders_enabled + 1);
		err = 0;
		break;
	}
	mutex_unlock(&tide_slots_mutex);
	return err;
}

static void tide_slot_give(struct tide_lender *lender)
{
	mutex_lock(&tide_slots_mutex);
	RCU_INIT_POINTER(tide_lenders[lender->slot], NULL);
	WRITE_ONCE(tide_lenders_enabled, tide_lenders_enabled - 1);
	mutex_unlock(&tide_slots_mutex);
	synchronize_rcu();
	lender->slot = -1;
}

/* What was counted while it was enabled before. */
static void tide_lender_count_anew(struct tide_lender *lender)
{
	int cpu;

	memset(&lender->stats, 0, sizeof(lender->stats));
	memset(&lender->get_latency, 0, sizeof(lender->get_latency));
	memset(&lender->put_latency, 0, sizeof(lender->put_latency));
	memset(&lender->ping_latency, 0, sizeof(lender->ping_latency));
	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(lender->refused, cpu), 0, sizeof(*lender->refused));
}

/**
 * tide_lender_enable() - connect in the background and stay connected
 * @lender: configured completely
 *
 * Context: process, under tide_control_mutex.
 * Return: 0, -ENOSPC when there are TIDE_MAX_LENDERS already, -EEXIST when one of
 * them has this identity: a guest has one session with another, or an errno.
 */
int tide_lender_enable(struct tide_lender *lender)
{
	struct task_struct *task;
	int err;

	if (tide_identity_taken(lender, &lender->config.identity))
		return -EEXIST;
	tide_lender_count_anew(lender);
	kref_init(&lender->kref);
	init_completion(&lender->released);
	lender->closing = false;
	lender->renounced = false;
	lender->hurry = false;
	lender->resume_until = KTIME_MAX;
	lender->reason = TIDE_NOT_REFUSED;
	tide_breaker_reset(lender, true);
	err = tide_slot_take(lender);
	if (err)
		return err;
	lender->state = TIDE_LENDER_CONNECTING;
	task = kthread_create(tide_session_main, lender, "tidepool_get");
	if (IS_ERR(task)) {
		lender->state = TIDE_LENDER_DISABLED;
		tide_slot_give(lender);
		return PTR_ERR(task);
	}
	lender->main = task;
	wake_up_process(task);
	return 0;
}

/**
 * tide_lender_disable() - disconnect and forget what the lender has
 * @lender: enabled
 *
 * Returns when nothing refers to the lender any more.
 *
 * Context: process, under tide_control_mutex.
 */
void tide_lender_disable(struct tide_lender *lender)
{
	unsigned int i;

	WRITE_ONCE(lender->closing, true);
	tide_lender_break(lender);
	kthread_stop(lender->main);
	lender->main = NULL;
	tide_slot_give(lender);
	tide_lender_put(lender);
	wait_for_completion(&lender->released);
	for (i = 0; i < lender->lanes; i++)
		tide_lane_quiesce(&lender->lane[i]);
	tide_breaker_reset(lender, true);
	lender->reason = TIDE_NOT_REFUSED;
	lender->state = TIDE_LENDER_DISABLED;
}

/**
 * tide_lender_destroy() - forget a lender that is not enabled
 * @lender: nobody has it
 */
void tide_lender_destroy(struct tide_lender *lender)
{
	tide_filter_set(lender, false);
	tide_put_release(lender);
	tide_forget_release(lender);
	tide_lanes_release(lender);
	tide_epochs_end(lender);
	kfree(lender);
}

/* Tries again now. */
static void tide_lender_hurry(struct tide_lender *lender)
{
	WRITE_ONCE(lender->hurry, true);
	wake_up(&lender->put_wait);
}

/**
 * tide_lender_identify() - another guest must answer from now on
 * @lender: enabled or not
 * @identity: the guest's; a session with another one ends
 *
 * Context: process, under tide_control_mutex.
 * Return: 0, or -EEXIST when it is enabled and so is another of this identity.
 */
int tide_lender_identify(struct tide_lender *lender, const struct tide_identity *identity)
{
	bool other;

	if (lender->state != TIDE_LENDER_DISABLED && tide_identity_taken(lender, identity))
		return -EEXIST;
	mutex_lock(&lender->wire_mutex);
	other = !tide_identity_is(&lender->config.identity, identity);
	lender->config.identity = *identity;
	lender->config.identity_set = true;
	mutex_unlock(&lender->wire_mutex);
	if (!other)
		return 0;
	tide_lender_hurry(lender);
	tide_lender_renounce(lender);
	return 0;
}

static bool tide_is_at(const struct tide_lender_config *config,
		       const struct sockaddr_storage *address, u16 port)
{
	return config->port == port && !memcmp(&config->address, address, sizeof(*address));
}

/**
 * tide_lender_move() - it is to be reached elsewhere from now on
 * @lender: enabled or not
 * @address: where it listens
 * @port: its TCP port
 *
 * The session goes on there, for who answers must be the same guest.
 *
 * Context: process.
 */
void tide_lender_move(struct tide_lender *lender, const struct sockaddr_storage *address,
		      u16 port)
{
	bool other;

	mutex_lock(&lender->wire_mutex);
	other = !tide_is_at(&lender->config, address, port);
	lender->config.address = *address;
	lender->config.port = port;
	mutex_unlock(&lender->wire_mutex);
	if (!other)
		return;
	tide_lender_hurry(lender);
	tide_lender_break(lender);
}

/**
 * tide_lender_resize() - tell the lender that another size is wanted
 * @lender: enabled, its configuration changed
 *
 * Context: process.
 */
void tide_lender_resize(struct tide_lender *lender)
{
	WRITE_ONCE(lender->resize_due, true);
	tide_get_pump(&lender->lane[0], MSG_DONTWAIT);
}
