// SPDX-License-Identifier: GPL-2.0-only
/*
 * One listener for all borrowers. A connection is a work item that blocks in it;
 * shutting the connection down ends it. Until the handshake
 * is over it is a stranger, of which only a few are admitted, and none for long.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/in6.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "base/compat.h"
#include "base/identity.h"
#include "base/stats.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/listen.h"
#include "lender/serve.h"
#include "lender/sessions.h"
#include "transport/agreed.h"
#include "transport/frames.h"
#include "transport/handshake.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_STRANGERS_MAX	32	/* in all, */
#define TIDE_STRANGERS_EACH	8	/* and from one address */
#define TIDE_STRANGER_MS	5000	/* for all of the handshake */

u16 tide_port = TIDE_PORT;
static LIST_HEAD(tide_strangers);	/* the oldest first */
static unsigned int tide_meeting;	/* these, and those sent away that are not gone yet */
static u64 tide_accepted_ever;
static unsigned int tide_listen_users;

/* ------------------------------------------------------------------ */
/* strangers							       */
/* ------------------------------------------------------------------ */

/* The oldest stranger from a place, if there are too many of them; tide_lending_mutex is held. */
static struct tide_connection *tide_stranger_surplus(const struct in6_addr *from,
						     unsigned int most)
{
	struct tide_connection *c, *oldest = NULL;
	unsigned int count = 0;

	list_for_each_entry(c, &tide_strangers, stranger) {
		if (from && !ipv6_addr_equal(&c->from, from))
			continue;
		if (!oldest)
			oldest = c;
		count++;
	}
	return count > most ? oldest : NULL;
}

static void tide_stranger_send_away(struct tide_connection *c)
{
	if (!c)
		return;
	list_del_init(&c->stranger);
	tide_shut(c);
}

static void tide_stranger_late(struct work_struct *work)
{
	tide_shut(container_of(to_delayed_work(work), struct tide_connection, deadline));
}

/* Whoever is new is let in, the oldest make room; tide_lending_mutex is held. */
static bool tide_stranger_admit(struct tide_connection *c)
{
	if (tide_meeting >= 2 * TIDE_STRANGERS_MAX)
		return false;
	tide_meeting++;
	c->ordinal = ++tide_accepted_ever;
	tide_connection_add(c);
	list_add_tail(&c->stranger, &tide_strangers);
	tide_stranger_send_away(tide_stranger_surplus(&c->from, TIDE_STRANGERS_EACH));
	tide_stranger_send_away(tide_stranger_surplus(NULL, TIDE_STRANGERS_MAX));
	queue_delayed_work(tide_get_queue, &c->deadline, msecs_to_jiffies(TIDE_STRANGER_MS));
	return true;
}

static void tide_stranger_met(struct tide_connection *c)
{
	mutex_lock(&tide_lending_mutex);
	list_del_init(&c->stranger);
	tide_meeting--;
	mutex_unlock(&tide_lending_mutex);
	cancel_delayed_work_sync(&c->deadline);
}

/* On success the connection holds on to its borrower until it detaches. */
static int tide_bind_borrower(struct tide_connection *c, const struct tide_handshake *hs)
{
	memcpy(&c->peer, hs->noise.peer, sizeof(c->peer));
	c->channel = hs->hello.channel;
	c->agreed = tide_limits_agree(&hs->hello.limits);
	mutex_lock(&tide_lending_mutex);
	c->borrower = tide_known(&c->peer);	/* it may be gone by now */
	mutex_unlock(&tide_lending_mutex);
	if (!c->borrower)
		return -EACCES;
	return tide_sealers_create(&c->sealers, &hs->keys, false, tide_handshake_clear(hs));
}

/* Nothing but its own state is changed before the handshake is over. */
static int tide_shake_hands(struct tide_connection *c, struct tide_handshake *hs)
{
	struct tide_identity who;
	int err = tide_handshake_hello(c->wire, hs);

	if (err)
		return err;
	memcpy(&who, hs->noise.peer, sizeof(who));
	return tide_handshake_lender(c->wire, hs, tide_welcomes(&who)) ?:
	       tide_bind_borrower(c, hs);
}

static int tide_welcome(struct tide_connection *c, struct tide_hello *hello,
			enum tide_reason *reason)
{
	struct tide_handshake *hs = tide_handshake_create();
	int err;

	if (!hs)
		return -ENOMEM;
	err = tide_shake_hands(c, hs);
	*hello = hs->hello;
	*reason = hs->reason;
	tide_handshake_free(hs);
	return err;
}

/* For the log; what the borrower was told if it was told anything, as it has it in its own. */
static const char *tide_refusal(enum tide_reason reason, int err)
{
	if (reason)
		return tide_reasons[reason];
	switch (err) {
	case -EPROTO:
		return "NotABorrower";
	case -EBADMSG:
		return "Repetition";
	case -EACCES:	/* since it was welcome */
		return tide_reasons[TIDE_UNKNOWN_IDENTITY];
	case -EBUSY:
		return "AnotherCame";
	case -EAGAIN:
	case -ETIMEDOUT:
		return "TooSlow";
	default:
		return "HungUp";
	}
}

/* Of an IPv6 address the host's part was not kept. */
static void tide_log_refused(const struct tide_connection *c, const char *why, int err)
{
	if (ipv6_addr_v4mapped(&c->from))
		pr_info_ratelimited("connection from %pI4 refused: %s: error %d\n",
				    &c->from.s6_addr32[3], why, err);
	else
		pr_info_ratelimited("connection from %pI6c/64 refused: %s: error %d\n",
				    &c->from, why, err);
}

static void tide_serve(struct work_struct *work)
{
	struct tide_connection *c = container_of(work, struct tide_connection, work);

	tide_serve_session(c);
	tide_detach(c);
	tide_connection_end(c);
}

static void tide_meet(struct work_struct *work)
{
	struct tide_connection *c = container_of(work, struct tide_connection, work);
	enum tide_reason reason = TIDE_NOT_REFUSED;
	struct tide_hello hello;
	int err = tide_welcome(c, &hello, &reason);

	tide_stranger_met(c);
	if (!err)
		err = c->channel == TIDE_CHANNEL_GET ? tide_attach_get(c, &hello) :
						       tide_attach_more(c, &hello);
	if (err) {
		tide_count(rejected);
		tide_log_refused(c, tide_refusal(reason, err), err);
		tide_connection_end(c);
		return;
	}
	INIT_WORK(&c->work, tide_serve);
	queue_work(c->channel == TIDE_CHANNEL_PUT ? tide_put_queue : tide_get_queue,
		   &c->work);
}

static void tide_accepted(struct tide_wire *wire)
{
	struct tide_connection *c = kvzalloc(sizeof(*c), GFP_KERNEL);
	bool admitted;

	if (!c)
		goto refuse;
	c->wire = wire;
	tide_wire_origin(wire, &c->from);
	INIT_WORK(&c->work, tide_meet);
	INIT_DELAYED_WORK(&c->deadline, tide_stranger_late);
	mutex_lock(&tide_lending_mutex);
	admitted = tide_stranger_admit(c);
	mutex_unlock(&tide_lending_mutex);
	if (!admitted) {
		tide_handshake_reject(wire, TIDE_REJECT_FULL);
		goto refuse;
	}
	queue_work(tide_get_queue, &c->work);
	return;
refuse:
	kvfree(c);
	tide_wire_free(wire);
}

/* ------------------------------------------------------------------ */
/* listening							       */
/* ------------------------------------------------------------------ */

/**
 * tide_listen() - one more borrower is enabled
 *
 * Context: process, under tide_control_mutex.
 * Return: 0, -ENOSPC when there are TIDE_MAX_BORROWERS already, or an errno.
 */
int tide_listen(void)
{
	int err;

	if (tide_listen_users == TIDE_MAX_BORROWERS)
		return -ENOSPC;
	if (tide_listen_users)
		goto listening;
	err = tide_queues_alloc() ?: tide_wire_listen(tide_port, tide_accepted);
	if (err) {
		pr_err("port: %u: cannot listen: error %d\n", tide_port, err);
		tide_queues_free();
		return err;
	}
listening:
	tide_listen_users++;
	return 0;
}

/**
 * tide_unlisten() - one borrower less is enabled
 *
 * Context: process, under tide_control_mutex.
 */
void tide_unlisten(void)
{
	if (--tide_listen_users)
		return;
	tide_wire_unlisten();
	tide_connections_break();
	tide_connections_await(tide_connections_gone, NULL, MAX_SCHEDULE_TIMEOUT);
	tide_queues_free();
}

bool tide_listening(void)
{
	return tide_listen_users;
}
