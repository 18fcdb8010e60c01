// SPDX-License-Identifier: GPL-2.0-only
/*
 * The borrowers of this guest: what each is granted, and its session of two
 * connections. What a session stored is dropped with it, for the borrower's
 * catalog is gone, too.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>

#include "base/identity.h"
#include "base/limits.h"
#include "lender/borrowers.h"
#include "lender/listen.h"
#include "lender/sessions.h"
#include "lender/shelf.h"
#include "uapi/wire.h"

#define TIDE_TAKEOVER_MS	2000

DEFINE_MUTEX(tide_lending_mutex);	/* the borrowers and the connections */
static LIST_HEAD(tide_borrowers);	/* the enabled ones */
static LIST_HEAD(tide_borrowers_made);	/* all */

/* ------------------------------------------------------------------ */
/* grants							       */
/* ------------------------------------------------------------------ */

static u64 tide_grant(const struct tide_borrower *borrower)
{
	u64 bytes = min3(borrower->wanted_bytes, READ_ONCE(borrower->quota_bytes),
			 READ_ONCE(tide_lend_bytes));

	return bytes & PAGE_MASK;
}

/**
 * tide_regrant() - grant what is possible now
 * @borrower: its mutex is held; it is told later, for it may not listen
 */
void tide_regrant(struct tide_borrower *borrower)
{
	if (!borrower->store)
		return;
	WRITE_ONCE(borrower->granted_bytes, tide_grant(borrower));
	tide_store_resize(borrower->store, borrower->granted_bytes);
	WRITE_ONCE(borrower->grant_due, true);
	tide_tell(borrower, 0);
}

/* ------------------------------------------------------------------ */
/* sessions							       */
/* ------------------------------------------------------------------ */

static bool tide_session_over(struct tide_borrower *borrower)
{
	bool over;

	mutex_lock(&borrower->mutex);
	over = !borrower->get && !borrower->put;
	mutex_unlock(&borrower->mutex);
	return over;
}

/**
 * tide_attach_get() - begin a session
 * @c: its GET channel, the handshake over
 * @session: its name
 * @wanted: bytes that the borrower would like to have
 *
 * Takes over from an older one, of which the borrower knows nothing any more.
 *
 * Return: 0 or a negative errno.
 */
int tide_attach_get(struct tide_connection *c, u64 session, u64 wanted)
{
	struct tide_borrower *borrower = c->borrower;
	int err = 0;

	mutex_lock(&borrower->mutex);
	tide_shut(borrower->get);
	tide_shut(borrower->put);
	mutex_unlock(&borrower->mutex);
	if (!wait_event_timeout(tide_connections_wait, tide_session_over(borrower),
				msecs_to_jiffies(TIDE_TAKEOVER_MS)))
		return -EBUSY;

	mutex_lock(&borrower->mutex);
	if (borrower->get || borrower->put || !borrower->enabled) {
		err = -EBUSY;
		goto out;
	}
	borrower->wanted_bytes = min_t(u64, wanted, TIDE_MAX_BYTES);
	borrower->granted_bytes = tide_grant(borrower);
	borrower->store = tide_store_create(borrower, borrower->granted_bytes);
	if (!borrower->store) {
		err = -ENOMEM;
		goto out;
	}
	borrower->session = session;
	mutex_lock(&borrower->send_mutex);
	borrower->get = c;
	mutex_unlock(&borrower->send_mutex);
	pr_info("borrowers/%s: connected, %llu MiB granted\n", borrower->name,
		borrower->granted_bytes >> 20);
out:
	mutex_unlock(&borrower->mutex);
	return err;
}

/**
 * tide_attach_put() - complete a session
 * @c: its PUT channel, the handshake over
 * @session: its name
 *
 * Return: 0, or -EBUSY when there is no such session.
 */
int tide_attach_put(struct tide_connection *c, u64 session)
{
	struct tide_borrower *borrower = c->borrower;
	int err = 0;

	mutex_lock(&borrower->mutex);
	if (!borrower->get || borrower->put || borrower->session != session)
		err = -EBUSY;
	else
		borrower->put = c;
	mutex_unlock(&borrower->mutex);
	return err;
}

/**
 * tide_detach() - a connection of a session has ended
 * @c: attached
 *
 * The other one ends, too; the last to go takes the store with it. Whoever still
 * sends on the connection does not wait any longer.
 */
void tide_detach(struct tide_connection *c)
{
	struct tide_borrower *borrower = c->borrower;
	struct tide_store *store = NULL;

	tide_shut(c);
	mutex_lock(&borrower->mutex);
	if (borrower->get == c) {
		mutex_lock(&borrower->send_mutex);
		borrower->get = NULL;
		mutex_unlock(&borrower->send_mutex);
		tide_shut(borrower->put);
	} else if (borrower->put == c) {
		borrower->put = NULL;
		tide_shut(borrower->get);
	}
	if (!borrower->get && !borrower->put) {
		store = borrower->store;
		WRITE_ONCE(borrower->store, NULL);
		borrower->granted_bytes = 0;
		if (store)
			tide_store_destroy(store);
	}
	mutex_unlock(&borrower->mutex);
	wake_up_all(&tide_connections_wait);
}

/**
 * tide_known() - the enabled borrower of an identity
 * @who: the identity
 *
 * Context: tide_lending_mutex is held.
 */
struct tide_borrower *tide_known(const struct tide_identity *who)
{
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list)
		if (tide_identity_is(&borrower->identity, who))
			return borrower;
	return NULL;
}

/**
 * tide_welcomes() - what to say to somebody who calls himself that
 * @who: the identity
 *
 * Context: process.
 */
enum tide_answer_code tide_welcomes(const struct tide_identity *who)
{
	enum tide_answer_code code = TIDE_ANSWER_UNKNOWN;
	struct tide_borrower *borrower;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(borrower, &tide_borrowers_made, made)
		if (borrower->identity_set && tide_identity_is(&borrower->identity, who))
			code = TIDE_ANSWER_DISABLED;
	if (tide_known(who))
		code = TIDE_WELCOME;
	mutex_unlock(&tide_lending_mutex);
	return code;
}

/* ------------------------------------------------------------------ */
/* life of a borrower						       */
/* ------------------------------------------------------------------ */

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
	mutex_lock(&tide_lending_mutex);
	list_add(&borrower->made, &tide_borrowers_made);
	mutex_unlock(&tide_lending_mutex);
	return borrower;
}

/* Under control/configfs.c's mutex, so that it stays like this. */
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
 * Context: process, under control/configfs.c's mutex.
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
 * Context: process, under control/configfs.c's mutex.
 */
void tide_borrower_disable(struct tide_borrower *borrower)
{
	mutex_lock(&tide_lending_mutex);
	list_del_init(&borrower->list);
	mutex_unlock(&tide_lending_mutex);

	mutex_lock(&borrower->mutex);
	borrower->enabled = false;
	tide_shut(borrower->get);
	tide_shut(borrower->put);
	mutex_unlock(&borrower->mutex);
	wait_event(tide_connections_wait, tide_borrower_alone(borrower));
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
 * Context: process, under control/configfs.c's mutex.
 * Return: 0, or -EEXIST when it is enabled and so is another of this identity.
 */
int tide_borrower_identify(struct tide_borrower *borrower,
			   const struct tide_identity *identity)
{
	if (borrower->enabled && tide_identity_taken(borrower, identity))
		return -EEXIST;
	mutex_lock(&tide_lending_mutex);
	borrower->identity = *identity;
	borrower->identity_set = true;
	mutex_unlock(&tide_lending_mutex);
	tide_borrower_part(borrower);
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
 * tide_lending_break() - end the sessions with all borrowers
 *
 * Context: process.
 */
void tide_lending_break(void)
{
	struct tide_borrower *borrower;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(borrower, &tide_borrowers, list) {
		mutex_lock(&borrower->mutex);
		tide_shut(borrower->get);
		tide_shut(borrower->put);
		mutex_unlock(&borrower->mutex);
	}
	mutex_unlock(&tide_lending_mutex);
}

/* Each borrower keeps its share of what may be lent in all. */
static void tide_trim_share(struct tide_borrower *borrower, u64 may, u64 lent)
{
	mutex_lock(&borrower->mutex);
	if (borrower->store)
		tide_store_trim(borrower->store,
				mul_u64_u64_div_u64(tide_store_pages(borrower->store),
						    may, lent));
	mutex_unlock(&borrower->mutex);
}

/**
 * tide_lending_shrink() - tide_lend_bytes has changed
 *
 * Context: process, under control/configfs.c's mutex, so borrowers do not come or go.
 */
void tide_lending_shrink(void)
{
	u64 may = tide_store_fits(READ_ONCE(tide_lend_bytes)), lent;
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list)
		tide_borrower_requota(borrower);
	lent = tide_store_lent();
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
	pages = borrower->store ? tide_store_pages(borrower->store) : 0;
	mutex_unlock(&borrower->mutex);
	return pages;
}

unsigned int tide_borrower_connections(struct tide_borrower *borrower)
{
	return !!READ_ONCE(borrower->get) + !!READ_ONCE(borrower->put);
}
