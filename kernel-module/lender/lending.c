// SPDX-License-Identifier: GPL-2.0-only
/*
 * To whom this guest lends, and how much: borrowers come, are enabled, changed and
 * disabled, and go; what is set for all of them reaches each.
 */
#include <linux/math64.h>
#include <linux/slab.h>

#include "base/identity.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/giveback.h"
#include "lender/lending.h"
#include "lender/listen.h"
#include "lender/serve.h"
#include "lender/sessions.h"
#include "lender/shelf.h"
#include "lender/shelf_pages.h"
#include "lender/unwanted.h"
#include "uapi/wire.h"

/**
 * tide_borrower_create() - a borrower that is configured but not enabled
 * @name: of the pairing
 *
 * Return: the borrower or an error pointer.
 */
struct tide_borrower *tide_borrower_create(const char *name)
{
	struct tide_borrower *borrower = kzalloc(sizeof(*borrower), GFP_KERNEL);

	if (!borrower)
		return ERR_PTR(-ENOMEM);
	strscpy(borrower->name, name, sizeof(borrower->name));
	INIT_LIST_HEAD(&borrower->list);
	mutex_init(&borrower->mutex);
	mutex_init(&borrower->send_mutex);
	INIT_DELAYED_WORK(&borrower->notify, tide_notify);
	INIT_DELAYED_WORK(&borrower->expire, tide_session_expire);
	INIT_WORK(&borrower->resize, tide_session_resize);
	INIT_WORK(&borrower->drop, tide_unwanted_drop);
	mutex_lock(&tide_lending_mutex);
	list_add(&borrower->made, &tide_borrowers_made);
	mutex_unlock(&tide_lending_mutex);
	return borrower;
}

/* Under tide_control_mutex, so that it stays like this. */
static bool tide_identity_taken(struct tide_borrower *borrower,
				const struct tide_identity *identity)
{
	struct tide_borrower *other;

	mutex_lock(&tide_lending_mutex);
	other = tide_known(identity);
	mutex_unlock(&tide_lending_mutex);
	return other && other != borrower;
}

/**
 * tide_borrower_enable() - let it connect
 * @borrower: configured completely
 *
 * Context: process, under tide_control_mutex.
 * Return: 0, -ENOSPC when there are TIDE_MAX_BORROWERS already, -EEXIST when
 * one of them has this identity, or another negative errno.
 */
int tide_borrower_enable(struct tide_borrower *borrower)
{
	int err;

	if (tide_identity_taken(borrower, &borrower->identity))
		return -EEXIST;
	err = tide_listen();
	if (err)
		return err;
	memset(&borrower->stats, 0, sizeof(borrower->stats));
	mutex_lock(&tide_lending_mutex);
	borrower->enabled = true;
	list_add(&borrower->list, &tide_borrowers);
	mutex_unlock(&tide_lending_mutex);
	return 0;
}

/**
 * tide_borrower_disable() - end its session and take its memory back
 * @borrower: enabled
 *
 * Context: process, under tide_control_mutex.
 */
void tide_borrower_disable(struct tide_borrower *borrower)
{
	mutex_lock(&tide_lending_mutex);
	list_del_init(&borrower->list);
	mutex_unlock(&tide_lending_mutex);

	mutex_lock(&borrower->mutex);
	borrower->enabled = false;
	tide_session_renounce(borrower);
	mutex_unlock(&borrower->mutex);
	tide_connections_await(tide_connections_gone, borrower, MAX_SCHEDULE_TIMEOUT);
	cancel_work_sync(&borrower->resize);
	cancel_delayed_work_sync(&borrower->expire);
	cancel_delayed_work_sync(&borrower->notify);
	tide_unlisten();
}

/**
 * tide_borrower_destroy() - forget a borrower that is not enabled
 * @borrower: nobody has it
 *
 * Context: process.
 */
void tide_borrower_destroy(struct tide_borrower *borrower)
{
	mutex_lock(&tide_lending_mutex);
	list_del(&borrower->made);
	mutex_unlock(&tide_lending_mutex);
	kfree(borrower);
}

/**
 * tide_borrower_identify() - it is another guest from now on
 * @borrower: enabled or not
 * @identity: the guest's; a session with another one ends
 *
 * Context: process, under tide_control_mutex.
 * Return: 0, or -EEXIST when it is enabled and so is another of this identity.
 */
int tide_borrower_identify(struct tide_borrower *borrower,
			   const struct tide_identity *identity)
{
	bool other;

	if (borrower->enabled && tide_identity_taken(borrower, identity))
		return -EEXIST;
	mutex_lock(&tide_lending_mutex);
	other = !tide_identity_is(&borrower->identity, identity);
	borrower->identity = *identity;
	borrower->identity_set = true;
	mutex_unlock(&tide_lending_mutex);
	if (!other)
		return 0;
	tide_borrower_part(borrower);
	mutex_lock(&borrower->mutex);
	tide_session_renounce(borrower);
	mutex_unlock(&borrower->mutex);
	return 0;
}

/**
 * tide_borrower_requota() - its quota, or what may be lent, has changed
 * @borrower: may be connected
 *
 * Context: process.
 */
void tide_borrower_requota(struct tide_borrower *borrower)
{
	mutex_lock(&borrower->mutex);
	tide_regrant(borrower);
	mutex_unlock(&borrower->mutex);
}

/**
 * tide_lending_renounce() - end the sessions with all borrowers, for good
 *
 * Context: process.
 */
void tide_lending_renounce(void)
{
	struct tide_borrower *borrower;

	tide_connections_break();
	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(borrower, &tide_borrowers, list) {
		mutex_lock(&borrower->mutex);
		tide_session_renounce(borrower);
		mutex_unlock(&borrower->mutex);
	}
	mutex_unlock(&tide_lending_mutex);
}

/* It is told how long its pages stay, and those of who is gone stay no longer than that. */
static void tide_session_relinger(struct tide_borrower *borrower)
{
	mutex_lock(&borrower->mutex);
	tide_session_look(borrower);
	tide_regrant(borrower);
	mutex_unlock(&borrower->mutex);
}

/**
 * tide_linger_set() - how long a session lives without a connection
 * @seconds: from now on, or from when it was lost; 0: not at all
 *
 * Context: process, under tide_control_mutex, so borrowers do not come or go.
 */
void tide_linger_set(unsigned int seconds)
{
	struct tide_borrower *borrower;

	WRITE_ONCE(tide_linger_s, seconds);
	list_for_each_entry(borrower, &tide_borrowers, list)
		tide_session_relinger(borrower);
}

/**
 * tide_lending_hold() - have borrowers put nothing for a while, or go on
 * @held: is it so from now on?
 *
 * What they have here they can get. For a guest that is about to move: pages that
 * come now would only have to be copied again.
 *
 * Context: process, under tide_control_mutex, so borrowers do not come or go.
 */
void tide_lending_hold(bool held)
{
	struct tide_borrower *borrower;

	WRITE_ONCE(tide_lending_held, held);
	list_for_each_entry(borrower, &tide_borrowers, list)
		tide_borrower_requota(borrower);
}

/* Each borrower keeps its share of what may be lent in all. */
static void tide_trim_share(struct tide_borrower *borrower, u64 may, u64 lent)
{
	mutex_lock(&borrower->mutex);
	if (borrower->shelf)
		tide_shelf_trim(borrower->shelf,
				mul_u64_u64_div_u64(tide_shelf_pages(borrower->shelf),
						    may, lent));
	mutex_unlock(&borrower->mutex);
}

/**
 * tide_lending_shrink() - tide_lend_bytes has changed
 *
 * Context: process, under tide_control_mutex, so borrowers do not come or go.
 */
void tide_lending_shrink(void)
{
	u64 may = tide_shelf_fits(READ_ONCE(tide_lend_bytes)), lent;
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list)
		tide_borrower_requota(borrower);
	lent = tide_shelf_lent();
	if (lent <= may)
		return;
	list_for_each_entry(borrower, &tide_borrowers, list)
		tide_trim_share(borrower, may, lent);
}

const char *tide_borrower_state_name(struct tide_borrower *borrower)
{
	if (!borrower->enabled)
		return "Disabled";
	return READ_ONCE(borrower->get) && READ_ONCE(borrower->put) ? "Connected" :
								       "Listening";
}

u64 tide_borrower_lent_pages(struct tide_borrower *borrower)
{
	u64 pages;

	mutex_lock(&borrower->mutex);
	pages = borrower->shelf ? tide_shelf_pages(borrower->shelf) : 0;
	mutex_unlock(&borrower->mutex);
	return pages;
}

unsigned int tide_borrower_connections(struct tide_borrower *borrower)
{
	return !!READ_ONCE(borrower->get) + !!READ_ONCE(borrower->put) +
	       tide_session_lanes(borrower);
}
