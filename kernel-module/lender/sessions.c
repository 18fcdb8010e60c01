// SPDX-License-Identifier: GPL-2.0-only
/*
 * The session of a borrower, of two connections or, with lanes, more, and what it is
 * granted. A session that has lost these lingers: its pages stay for a while, and a
 * borrower that comes back in time finds them (invariant 14). They are dropped when it
 * does not, or comes back without what it knew of them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "base/limits.h"
#include "base/timeline.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/sessions.h"
#include "lender/shelf.h"
#include "lender/unwanted.h"
#include "uapi/wire.h"

#define TIDE_TAKEOVER_MS	2000

unsigned int tide_linger_s = 60;
bool tide_lending_held;

/* ------------------------------------------------------------------ */
/* grants							       */
/* ------------------------------------------------------------------ */

static u64 tide_grant(const struct tide_borrower *borrower)
{
	u64 bytes = min3(READ_ONCE(borrower->wanted_bytes), READ_ONCE(borrower->quota_bytes),
			 READ_ONCE(tide_lend_bytes));

	return bytes & PAGE_MASK;
}

/**
 * tide_regrant() - grant what is possible now
 * @borrower: its mutex is held; it is told later, for it may not listen
 */
void tide_regrant(struct tide_borrower *borrower)
{
	if (!borrower->shelf)
		return;
	WRITE_ONCE(borrower->granted_bytes, tide_grant(borrower));
	tide_shelf_resize(borrower->shelf, borrower->granted_bytes);
	WRITE_ONCE(borrower->grant_due, true);
	tide_tell(borrower, 0);
}

/**
 * tide_session_resize() - grant what a borrower wants now
 * @work: borrower->resize
 *
 * Not by the thread that serves it: until many pages have gone it would answer nothing.
 */
void tide_session_resize(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(work, struct tide_borrower, resize);

	mutex_lock(&borrower->mutex);
	tide_regrant(borrower);
	mutex_unlock(&borrower->mutex);
}

/* ------------------------------------------------------------------ */
/* sessions							       */
/* ------------------------------------------------------------------ */

/**
 * tide_session_lanes() - how many lanes beyond the first a session has
 * @borrower: whose
 *
 * Context: any.
 */
unsigned int tide_session_lanes(const struct tide_borrower *borrower)
{
	unsigned int i, lanes = 0;

	for (i = 0; i < ARRAY_SIZE(borrower->lane); i++)
		lanes += !!READ_ONCE(borrower->lane[i]);
	return lanes;
}

/* Is nobody connected? The mutex is held. */
static bool tide_session_idle(const struct tide_borrower *borrower)
{
	return !borrower->get && !borrower->put && !tide_session_lanes(borrower);
}

/* The mutex is held. */
static void tide_session_shut(struct tide_borrower *borrower)
{
	unsigned int i;

	tide_shut(borrower->get);
	tide_shut(borrower->put);
	for (i = 0; i < ARRAY_SIZE(borrower->lane); i++)
		tide_shut(borrower->lane[i]);
}

static bool tide_session_over(struct tide_borrower *borrower)
{
	bool over;

	mutex_lock(&borrower->mutex);
	over = tide_session_idle(borrower);
	mutex_unlock(&borrower->mutex);
	return over;
}

/* Nobody is connected, the mutex is held. */
static void tide_session_drop(struct tide_borrower *borrower)
{
	struct tide_shelf *shelf = borrower->shelf;

	borrower->session = 0;
	WRITE_ONCE(borrower->granted_bytes, 0);
	WRITE_ONCE(borrower->shelf, NULL);
	if (!shelf)
		return;
	tide_unwanted_end(borrower);
	tide_shelf_destroy(shelf);
}

/**
 * tide_session_renounce() - a session ends, and does not go on when the borrower comes back
 * @borrower: its mutex is held
 */
void tide_session_renounce(struct tide_borrower *borrower)
{
	borrower->session = 0;
	tide_session_shut(borrower);
	if (tide_session_idle(borrower))
		tide_session_drop(borrower);
}

static s64 tide_linger_left(const struct tide_borrower *borrower)
{
	return (s64)READ_ONCE(tide_linger_s) * MSEC_PER_SEC -
	       ktime_ms_delta(ktime_get_boottime(), borrower->lost_at);
}

/* Nobody is connected: the borrower may come back, if not for ever. The mutex is held. */
static void tide_session_linger(struct tide_borrower *borrower)
{
	s64 left = tide_linger_left(borrower);

	if (borrower->session && borrower->enabled && left > 0)
		tide_expire_in(borrower, left);
	else
		tide_session_drop(borrower);
}

/**
 * tide_session_look() - let a session linger that has no connection, or end
 * @borrower: its mutex is held
 */
void tide_session_look(struct tide_borrower *borrower)
{
	if (borrower->shelf && tide_session_idle(borrower))
		tide_session_linger(borrower);
}

/**
 * tide_session_expire() - a session that lingers may have done so for long enough
 * @work: borrower->expire
 */
void tide_session_expire(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(to_delayed_work(work),
						      struct tide_borrower, expire);

	mutex_lock(&borrower->mutex);
	tide_session_look(borrower);
	mutex_unlock(&borrower->mutex);
}

/*
 * May a session go on? Not if its borrower is one that has gone back in time: what
 * it knows is of before, and its next versions have been given already.
 */
static bool tide_session_resumes(const struct tide_borrower *borrower,
				 const struct tide_hello *hello)
{
	return borrower->shelf && borrower->session &&
	       le64_to_cpu(hello->resume) == borrower->session &&
	       le64_to_cpu(hello->version) >= borrower->newest;
}

/* Nobody is connected, the mutex is held. */
static int tide_session_create(struct tide_borrower *borrower, u64 session)
{
	struct tide_shelf *shelf;

	tide_session_drop(borrower);
	shelf = tide_shelf_create(borrower, 0);
	if (!shelf)
		return -ENOMEM;
	if (tide_unwanted_begin(borrower)) {
		tide_shelf_destroy(shelf);
		return -ENOMEM;
	}
	borrower->shelf = shelf;
	borrower->session = session;
	borrower->newest = 0;
	return 0;
}

/*
 * Whoever comes is the newest, and the only one who waits. One whose last message
 * was held up until another had come is as good as gone.
 */
static int tide_session_claim(struct tide_borrower *borrower, const struct tide_connection *c)
{
	int err = 0;

	mutex_lock(&borrower->mutex);
	if (borrower->taking || !borrower->enabled || c->ordinal < borrower->ordinal ||
	    tide_timeline_held()) {
		err = -EBUSY;
	} else {
		WRITE_ONCE(borrower->taking, true);
		tide_session_shut(borrower);
	}
	mutex_unlock(&borrower->mutex);
	return err;
}

static int tide_session_attach(struct tide_connection *c, const struct tide_hello *hello)
{
	struct tide_borrower *borrower = c->borrower;
	int err;

	if (!tide_session_idle(borrower) || !borrower->enabled)
		return -EBUSY;
	c->resumed = tide_session_resumes(borrower, hello);
	if (!c->resumed) {
		err = tide_session_create(borrower, le64_to_cpu(hello->session));
		if (err)
			return err;
	}
	borrower->offered = le64_to_cpu(hello->session);
	borrower->ordinal = c->ordinal;
	borrower->wanted_bytes = min_t(u64, le64_to_cpu(hello->size_bytes), TIDE_MAX_BYTES);
	WRITE_ONCE(borrower->granted_bytes, tide_grant(borrower));
	tide_shelf_resize(borrower->shelf, borrower->granted_bytes);
	mutex_lock(&borrower->send_mutex);
	WRITE_ONCE(borrower->get, c);
	mutex_unlock(&borrower->send_mutex);
	pr_info_ratelimited("borrowers/%s: %s, %llu MiB granted\n", borrower->name,
			    c->resumed ? "resumed" : "connected",
			    borrower->granted_bytes >> 20);
	return 0;
}

/**
 * tide_attach_get() - begin a session, or go on with one
 * @c: its GET channel, the handshake over
 * @hello: what the borrower has said
 *
 * Takes over from connections that there are: the borrower has given them up.
 *
 * Return: 0 or a negative errno.
 */
int tide_attach_get(struct tide_connection *c, const struct tide_hello *hello)
{
	struct tide_borrower *borrower = c->borrower;
	int err = tide_session_claim(borrower, c);

	if (err)
		return err;
	tide_connections_await(tide_session_over, borrower, msecs_to_jiffies(TIDE_TAKEOVER_MS));
	mutex_lock(&borrower->mutex);
	err = tide_session_attach(c, hello);
	WRITE_ONCE(borrower->taking, false);
	mutex_unlock(&borrower->mutex);
	return err;
}

/* Where @c is noted or, if it is NULL, one could be; NULL: nowhere. The mutex is held. */
static struct tide_connection **tide_session_find(struct tide_borrower *borrower, u8 channel,
						  const struct tide_connection *c)
{
	unsigned int i;

	if (channel == TIDE_CHANNEL_PUT)
		return borrower->put == c ? &borrower->put : NULL;
	for (i = 0; i < ARRAY_SIZE(borrower->lane); i++)
		if (borrower->lane[i] == c)
			return &borrower->lane[i];
	return NULL;
}

/**
 * tide_attach_more() - complete a session, or add a lane to it
 * @c: its PUT channel, or a lane, the handshake over
 * @hello: what the borrower has said: the number that it offered with the GET channel
 *
 * Return: 0, or -EBUSY when there is no such GET channel, or no room beside it.
 */
int tide_attach_more(struct tide_connection *c, const struct tide_hello *hello)
{
	struct tide_borrower *borrower = c->borrower;
	struct tide_connection **place;

	mutex_lock(&borrower->mutex);
	place = tide_session_find(borrower, c->channel, NULL);
	if (!borrower->get || le64_to_cpu(hello->session) != borrower->offered)
		place = NULL;
	if (place) {
		c->agreed = borrower->get->agreed;
		WRITE_ONCE(*place, c);
	}
	mutex_unlock(&borrower->mutex);
	return place ? 0 : -EBUSY;
}

/* The mutex is held. */
static void tide_session_leave(struct tide_borrower *borrower, const struct tide_connection *c)
{
	if (c->channel != TIDE_CHANNEL_GET) {
		WRITE_ONCE(*tide_session_find(borrower, c->channel, c), NULL);
		return;
	}
	mutex_lock(&borrower->send_mutex);
	WRITE_ONCE(borrower->get, NULL);
	mutex_unlock(&borrower->send_mutex);
}

/**
 * tide_detach() - a connection of a session has ended
 * @c: attached
 *
 * The others end, too, but for a lane that was not used; after the last the session
 * lingers. Whoever still sends on the connection does not wait any longer.
 */
void tide_detach(struct tide_connection *c)
{
	struct tide_borrower *borrower = c->borrower;

	tide_shut(c);
	mutex_lock(&borrower->mutex);
	tide_session_leave(borrower, c);
	if (c->vital)
		tide_session_shut(borrower);
	if (tide_session_idle(borrower)) {
		borrower->lost_at = ktime_get_boottime();
		tide_session_look(borrower);
	}
	mutex_unlock(&borrower->mutex);
	wake_up_all(&tide_connections_wait);
}
