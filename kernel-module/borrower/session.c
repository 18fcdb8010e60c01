// SPDX-License-Identifier: GPL-2.0-only
/*
 * The borrower's connection to one lender: two TCP connections of one session, and
 * more lanes (lane.c) if both have use for them, made again by themselves when they
 * are lost, all together. When they are, all that was asked is read from disk, and
 * what was not acknowledged is not in the catalog; the rest stays there, and is asked
 * for when lender and session are found again (invariant 14). A session begins with
 * an empty catalog for that lender, and ends when the lender refuses to go on with
 * it, has lingered long enough for it, or is another one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/crypto.h"
#include "base/identity.h"
#include "base/timeline.h"
#include "borrower/breaker.h"
#include "borrower/buffers.h"
#include "borrower/catalog.h"
#include "borrower/fetch.h"
#include "borrower/forgets.h"
#include "borrower/lane.h"
#include "borrower/outbox.h"
#include "borrower/send_pages.h"
#include "borrower/peer.h"
#include "borrower/receive.h"
#include "borrower/session.h"
#include "borrower/versions.h"
#include "transport/frames.h"
#include "transport/handshake.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_CONNECT_MS		3000
#define TIDE_BACKOFF_MIN_MS	250
#define TIDE_BACKOFF_MAX_MS	5000
#define TIDE_BACKOFF_SESSION_MS	1000	/* while there is something to lose */
#define TIDE_STEADY_MS		5000	/* a session that was shorter was of no use */

/* ------------------------------------------------------------------ */
/* connections							       */
/* ------------------------------------------------------------------ */

static int tide_reach(struct tide_lender *lender, struct tide_wire *wire)
{
	struct sockaddr_storage address;
	u16 port;

	mutex_lock(&lender->wire_mutex);
	address = lender->config.address;
	port = lender->config.port;
	mutex_unlock(&lender->wire_mutex);
	return tide_wire_connect(wire, &address, port, TIDE_CONNECT_MS);
}

static int tide_wire_begin(struct tide_lender *lender, struct tide_link *link,
			   struct tide_identity *identity)
{
	struct tide_wire *wire = tide_wire_create(READ_ONCE(lender->config.address.ss_family));

	if (IS_ERR(wire))
		return PTR_ERR(wire);
	mutex_lock(&lender->wire_mutex);
	link->wire = wire;	/* from here on tide_lender_break() ends it */
	*identity = lender->config.identity;
	mutex_unlock(&lender->wire_mutex);
	return READ_ONCE(lender->closing) || READ_ONCE(lender->renounced) ||
	       READ_ONCE(lender->ending) || tide_timeline_held() ? -ESHUTDOWN : 0;
}

/* Nothing is sent but the handshake before there are these, nor before limits are agreed on. */
static int tide_seal(struct tide_lender *lender, struct tide_link *link,
		     const struct tide_handshake *hs)
{
	int err;

	mutex_lock(&link->tx_mutex);
	if (hs->hello.channel == TIDE_CHANNEL_GET)
		lender->agreed = tide_limits_agree(&hs->answer.limits);
	err = tide_sealers_create(&link->seal, &hs->keys, true, tide_handshake_clear(hs));
	mutex_unlock(&link->tx_mutex);
	return err;
}

/* What the reason alone does not say. */
static void tide_log_refusal(const struct tide_lender *lender, const struct tide_handshake *hs)
{
	const struct tide_limits *limits = &hs->answer.limits;

	if (hs->reason == TIDE_OTHER_VERSION)
		pr_info_ratelimited("lenders/%s: it speaks versions %u to %u, not %u\n",
				    lender->name, hs->oldest, hs->newest, TIDE_PROTOCOL);
	if (hs->reason == TIDE_BAD_LIMITS)
		pr_info_ratelimited("lenders/%s: limits: it allows %u lanes, %u pages a get, %u a put, %u notices\n",
				    lender->name, limits->lanes, le16_to_cpu(limits->get),
				    le16_to_cpu(limits->put), le16_to_cpu(limits->notices));
}

/* Who gives his pages in the clear does not hide their names either. */
static u64 tide_features(const struct tide_lender *lender)
{
	return lender->config.encryption == TIDE_NO_ENCRYPTION ? TIDE_FEATURE_CLEAR : 0;
}

static int tide_shake_hands(struct tide_lender *lender, struct tide_link *link,
			    struct tide_handshake *hs)
{
	struct tide_identity identity;

	hs->hello.features = cpu_to_le64(tide_features(lender));
	return tide_wire_begin(lender, link, &identity) ?:
	       tide_reach(lender, link->wire) ?:
	       tide_handshake_borrower(link->wire, hs, &identity) ?:
	       tide_seal(lender, link, hs);
}

static int tide_connect(struct tide_lender *lender, const struct tide_hello *hello,
			struct tide_link *link)
{
	struct tide_handshake *hs = tide_handshake_create();
	int err;

	if (!hs)
		return -ENOMEM;
	hs->hello = *hello;
	err = tide_shake_hands(lender, link, hs);
	WRITE_ONCE(lender->reason, hs->reason);
	memcpy(lender->contribution, hs->noise.hash, sizeof(lender->contribution));
	tide_log_refusal(lender, hs);
	tide_handshake_free(hs);
	return err;
}

static void tide_disconnect(struct tide_lender *lender, struct tide_link *link)
{
	struct tide_wire *wire;

	mutex_lock(&link->tx_mutex);
	mutex_lock(&lender->wire_mutex);
	wire = link->wire;
	link->wire = NULL;
	mutex_unlock(&lender->wire_mutex);
	tide_sealers_free(&link->seal);
	mutex_unlock(&link->tx_mutex);
	tide_wire_free(wire);
}

/* Of what was to be sent on it nothing is left. */
static void tide_lane_disconnect(struct tide_lane *lane)
{
	tide_disconnect(lane->lender, &lane->link);
	lane->tx_offset = 0;
	lane->tx_length = 0;
}

/* ------------------------------------------------------------------ */
/* lanes							       */
/* ------------------------------------------------------------------ */

/* Is a frame so late on any lane that the lender is as good as gone? */
static bool tide_lanes_silent(const struct tide_lender *lender)
{
	unsigned int i;

	for (i = 0; i < lender->lanes; i++)
		if (READ_ONCE(lender->lane[i].accepting) && tide_lane_silent(&lender->lane[i]))
			return true;
	return false;
}

static void tide_lane_ping(struct tide_lane *lane)
{
	WRITE_ONCE(lane->ping_due, true);
	tide_get_pump(lane, MSG_DONTWAIT);
}

static void tide_lanes_ping(struct tide_lender *lender)
{
	unsigned int i;

	for (i = 0; i < lender->lanes; i++)
		if (READ_ONCE(lender->lane[i].accepting))
			tide_lane_ping(&lender->lane[i]);
}

static int tide_lane_connect(struct tide_lane *lane)
{
	struct tide_handshake *hs = tide_handshake_create();
	int err;

	if (!hs)
		return -ENOMEM;
	hs->hello = (struct tide_hello) {
		.session = cpu_to_le64(lane->lender->offered),
		.channel = TIDE_CHANNEL_LANE,
	};
	err = tide_shake_hands(lane->lender, &lane->link, hs);
	tide_handshake_free(hs);
	return err;
}

/*
 * One after the other, for a lender takes few strangers of an address at a time. Nothing
 * is asked on a lane before the lender has answered there once.
 */
static int tide_lane_begin(struct tide_lane *lane)
{
	int err;

	mutex_lock(&lane->lender->lane_mutex);
	err = tide_lane_connect(lane);
	mutex_unlock(&lane->lender->lane_mutex);
	if (err)
		return err;
	tide_lane_ping(lane);
	err = tide_receive_next(lane);
	if (!err)
		tide_lane_accept(lane);
	return err;
}

/* What cannot be had is done without, unless somebody has meddled with it. */
static void tide_lane_missing(struct tide_lane *lane, int err)
{
	struct tide_lender *lender = lane->lender;

	if (tide_receive_bad(lender, err))
		tide_lender_break(lender);
	else if (!READ_ONCE(lender->ending))
		pr_info_ratelimited("lenders/%s: without lane %u: error %d\n",
				    lender->name, lane->number, err);
	tide_lane_disconnect(lane);
}

/* The end of a lane that was there is the end of the session. */
static int tide_lane_main(void *arg)
{
	struct tide_lane *lane = arg;
	int err;

	set_user_nice(current, -10);
	err = tide_lane_begin(lane);
	if (err) {
		tide_lane_missing(lane, err);
		return 0;
	}
	tide_receive(lane);
	tide_lender_break(lane->lender);
	return 0;
}

static void tide_lane_start(struct tide_lane *lane)
{
	struct task_struct *task = kthread_create(tide_lane_main, lane, "tidepool_get/%u",
						  lane->number);

	if (IS_ERR(task))
		return;
	lane->task = get_task_struct(task);
	wake_up_process(task);
}

/* With the first as many as this guest has processors and the lender allows. */
static void tide_lanes_start(struct tide_lender *lender)
{
	unsigned int i, lanes = min3(lender->lanes, lender->agreed.lanes, num_online_cpus());

	for (i = 1; i < lanes; i++)
		tide_lane_start(&lender->lane[i]);
}

/* The session is ending, and its connections are shut down. */
static void tide_lanes_stop(struct tide_lender *lender)
{
	struct tide_lane *lane;
	unsigned int i;

	for (i = 1; i < lender->lanes; i++) {
		lane = &lender->lane[i];
		if (!lane->task)
			continue;
		kthread_stop(lane->task);
		put_task_struct(lane->task);
		lane->task = NULL;
	}
}

/* ------------------------------------------------------------------ */
/* a session							       */
/* ------------------------------------------------------------------ */

/**
 * tide_session_tick() - each second: the breaker, pings, and what else waits to be sent
 * @work: lender->tick
 */
void tide_session_tick(struct work_struct *work)
{
	struct tide_lender *lender = container_of(to_delayed_work(work),
						  struct tide_lender, tick);

	if (tide_lanes_silent(lender) || tide_puts_overdue(lender)) {
		tide_lender_break(lender);
		return;
	}
	tide_breaker_update(lender);
	schedule_delayed_work(&lender->tick, HZ);
	tide_lanes_ping(lender);
}

static void tide_set_ready(struct tide_lender *lender, bool ready)
{
	spin_lock_irq(&lender->put_lock);
	WRITE_ONCE(lender->ready, ready);
	spin_unlock_irq(&lender->put_lock);
	atomic_add(ready ? 1 : -1, &tide_lenders_ready);
	tide_buffers_refit();
}

/* What the lender has is not asked for any more. */
static void tide_session_forget(struct tide_lender *lender)
{
	if (!lender->session)
		return;
	WRITE_ONCE(lender->session, 0);
	tide_catalog_purge_lender(lender->slot);
	tide_epochs_end(lender);
	tide_forget_nothing(lender);
}

/* Before a try: is there a session that may go on? */
static void tide_session_check(struct tide_lender *lender)
{
	if (xchg(&lender->renounced, false) ||
	    ktime_after(ktime_get_boottime(), lender->resume_until))
		tide_session_forget(lender);
}

/* The lender's word on whether the former session goes on. */
static int tide_session_settle(struct tide_lender *lender, u64 offered)
{
	int err = tide_receive_first_grant(lender);

	if (err)
		return err;
	if (lender->resumed && !lender->session)
		return -EPROTO;
	if (!lender->resumed) {
		tide_session_forget(lender);
		WRITE_ONCE(lender->session, offered);
	}
	lender->resume_until = KTIME_MAX;
	return 0;
}

static int tide_session_begin(struct tide_lender *lender)
{
	struct tide_hello hello = {
		.session = cpu_to_le64(get_random_u64() ?: 1),
		.resume = cpu_to_le64(lender->session),
		.version = cpu_to_le64(tide_newest_version()),
		.size_bytes = cpu_to_le64(lender->config.size_bytes),
		.channel = TIDE_CHANNEL_GET,
	};
	int err;

	WRITE_ONCE(lender->ending, false);
	lender->stalled = false;
	lender->offered = le64_to_cpu(hello.session);
	tide_breaker_reset(lender, false);
	err = tide_connect(lender, &hello, &lender->lane[0].link) ?:
	      tide_session_settle(lender, lender->offered);
	if (err)
		return err;
	hello.channel = TIDE_CHANNEL_PUT;
	err = tide_connect(lender, &hello, &lender->put) ?: tide_epoch_begin(lender);
	if (err)
		return err;
	tide_lane_expect(&lender->lane[0], 0);
	return tide_sender_start(lender);
}

static void tide_session_end(struct tide_lender *lender)
{
	unsigned int i;

	WRITE_ONCE(lender->ending, true);
	tide_lender_break(lender);
	cancel_delayed_work_sync(&lender->tick);
	tide_lanes_stop(lender);
	for (i = 0; i < lender->lanes; i++)
		tide_get_abort(&lender->lane[i]);
	tide_sender_stop(lender);
	for (i = 0; i < lender->lanes; i++)
		tide_lane_disconnect(&lender->lane[i]);
	tide_disconnect(lender, &lender->put);
	lender->resume_until = min(lender->resume_until,
				   ktime_add_ms(ktime_get_boottime(), lender->linger_ms));
}

static int tide_session(struct tide_lender *lender)
{
	int err = tide_session_begin(lender);

	if (err) {
		tide_session_end(lender);
		return err;
	}
	tide_lanes_start(lender);
	tide_lane_accept(&lender->lane[0]);
	tide_set_ready(lender, true);
	WRITE_ONCE(lender->state, TIDE_LENDER_CONNECTED);
	atomic64_inc(&lender->stats.connects);
	if (lender->resumed)
		atomic64_inc(&lender->stats.resumes);
	pr_info_ratelimited("lenders/%s: %s\n", lender->name,
			    lender->resumed ? "resumed" : "connected");
	schedule_delayed_work(&lender->tick, HZ / 10);

	err = tide_receive(&lender->lane[0]);

	WRITE_ONCE(lender->state, TIDE_LENDER_CONNECTING);
	tide_set_ready(lender, false);
	atomic64_inc(&lender->stats.disconnects);
	if (!READ_ONCE(lender->closing)) {
		pr_info_ratelimited("lenders/%s: connection lost: error %d\n",
				    lender->name, err);
		if (!READ_ONCE(lender->hurry))	/* else it was this guest who wanted it */
			tide_breaker_lost(lender);
	}
	tide_session_end(lender);
	return 0;
}

static void tide_wait(struct tide_lender *lender, unsigned int ms)
{
	wait_event_interruptible_timeout(lender->put_wait, kthread_should_stop() ||
					 READ_ONCE(lender->hurry),
					 msecs_to_jiffies(ms));
}

/* Has the lender itself said that it has nothing for this guest? Others may say what they like. */
static bool tide_lender_declines(const struct tide_lender *lender)
{
	return lender->reason == TIDE_UNKNOWN_IDENTITY || lender->reason == TIDE_SWITCHED_OFF;
}

/* Why there is no session, for those who look and for the log. */
static void tide_not_connected(struct tide_lender *lender, int err)
{
	bool refused = err == -EACCES && lender->reason;	/* by itself, not on the way */

	if (refused && tide_lender_declines(lender))
		tide_session_forget(lender);
	if (!refused)
		WRITE_ONCE(lender->reason, TIDE_UNREACHABLE);
	WRITE_ONCE(lender->state, refused ? TIDE_LENDER_REJECTED : TIDE_LENDER_CONNECTING);
	if (READ_ONCE(lender->closing))
		return;
	if (refused)
		pr_info_ratelimited("lenders/%s: refused: %s\n", lender->name,
				    tide_lender_reason(lender));
	else
		pr_info_ratelimited("lenders/%s: cannot connect: error %d\n", lender->name, err);
}

static unsigned int tide_backoff_max(const struct tide_lender *lender)
{
	return lender->session ? TIDE_BACKOFF_SESSION_MS : TIDE_BACKOFF_MAX_MS;
}

/**
 * tide_session_main() - have a session with a lender, again and again
 * @arg: the lender
 *
 * Context: its main thread, which receives on the first lane.
 */
int tide_session_main(void *arg)
{
	struct tide_lender *lender = arg;
	unsigned int backoff = TIDE_BACKOFF_MIN_MS;
	ktime_t begun;
	int err;

	set_user_nice(current, -10);
	while (!kthread_should_stop()) {
		tide_session_check(lender);
		begun = ktime_get();
		err = tide_session(lender);
		if (err)
			tide_not_connected(lender, err);
		if (!err && ktime_ms_delta(ktime_get(), begun) >= TIDE_STEADY_MS)
			backoff = TIDE_BACKOFF_MIN_MS;
		else
			backoff = min(2 * backoff, tide_backoff_max(lender));
		tide_wait(lender, backoff);
		if (xchg(&lender->hurry, false))
			backoff = TIDE_BACKOFF_MIN_MS;
	}
	tide_session_forget(lender);
	return 0;
}
