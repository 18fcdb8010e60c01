/* SPDX-License-Identifier: GPL-2.0-only */
/* What a borrower knows of its lenders: peer.c. */
#ifndef TIDE_PEER_H
#define TIDE_PEER_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/histogram.h"
#include "base/identity.h"
#include "borrower/breaker_state.h"
#include "borrower/catalog_ages.h"
#include "borrower/epochs.h"
#include "borrower/lane.h"
#include "transport/agreed.h"
#include "transport/handshake.h"
#include "uapi/wire.h"

struct bio_vec;
struct tide_batch;
struct tide_cipher;
struct tide_put_head;

#define TIDE_MAX_LENDERS	8

/* What the borrower counts for one lender; control/show.c names the members. */
struct tide_lender_stats {
	atomic64_t get_hits;	/* pages that came from the pool */
	atomic64_t get_hits_buffer;	/* of those, from the outgoing buffer */
	atomic64_t get_misses;	/* the lender had dropped the page */
	atomic64_t get_late;	/* deadline passed, read from disk */
	atomic64_t get_errors;	/* connection lost meanwhile */
	atomic64_t gets_sent;	/* requests: one a read-ahead window */
	atomic64_t puts;	/* pages acknowledged by the lender */
	atomic64_t puts_sent;	/* pages sent */
	atomic64_t put_requests;	/* batches sent */
	atomic64_t drop_nobuffer;	/* puts dropped: no buffer free */
	atomic64_t drop_refused;	/* puts dropped: the lender declined */
	atomic64_t drop_nomem;	/* puts dropped: no room in the catalog */
	atomic64_t drop_stale;	/* puts dropped: page changed meanwhile */
	atomic64_t drop_lost;	/* puts dropped: connection lost */
	atomic64_t evicted_notices;	/* pages the lender said it dropped */
	atomic64_t connects;
	atomic64_t disconnects;
	atomic64_t resumes;	/* connects that found the former session */
	atomic64_t get_corrupt;	/* not what was put: read from disk */
	atomic64_t get_incomplete;	/* came without their whole folio: read from disk */
	atomic64_t get_unasked;	/* read from disk: the lender could not be asked */
	atomic64_t breaker_opened;	/* times the latency breaker stopped */
	atomic64_t breaker_opened_small;	/* times it stopped small reads */
	atomic64_t breaker_opened_large;	/* times it stopped large ones */
	atomic64_t get_skipped;	/* read from disk because of the breaker */
	atomic64_t get_skipped_sequential;	/* read from disk with their stream */
	atomic64_t bad_frames;	/* none, or not the lender's */
};

/* Likewise, of what is evicted while it takes none of it: each processor counts its own. */
struct tide_lender_refusals {
	s64 drop_breaker;	/* puts dropped: stopped by the breaker */
	s64 drop_held;		/* puts dropped: the lender wants none now */
	s64 drop_sequential;	/* puts dropped: read sequentially */
};

enum tide_strategy {
	TIDE_NON_INCLUSIVE,	/* the lender keeps what it sends back */
	TIDE_EXCLUSIVE,		/* the lender drops what it sends back */
};

enum tide_encryption {
	TIDE_AES_GCM,
	TIDE_NO_ENCRYPTION,
};

enum tide_lender_state {
	TIDE_LENDER_DISABLED,
	TIDE_LENDER_CONNECTING,
	TIDE_LENDER_CONNECTED,
	TIDE_LENDER_REJECTED,
};

/**
 * struct tide_lender_config - what configfs sets for one lender
 * @address: where it listens
 * @port: its TCP port
 * @identity: who must answer there; wire_mutex guards it
 * @identity_set: it was written
 * @size_bytes: how much to borrow
 * @strategy: what becomes of a page that is read back
 * @deadline_us: a get not answered after this is read from disk
 * @encryption: of the pages that it is given
 * @breaker: when a slow lender is left alone
 * @breaker_short: thresholds of the pings' mean over the last 15 s
 * @breaker_long: thresholds of their moving average
 * @sequential_filter: it does not get what is read sequentially
 */
struct tide_lender_config {
	struct sockaddr_storage address;
	u16 port;
	struct tide_identity identity;
	bool identity_set;
	u64 size_bytes;
	enum tide_strategy strategy;
	u32 deadline_us;
	enum tide_encryption encryption;
	enum tide_breaker_mode breaker;
	struct tide_thresholds breaker_short, breaker_long;
	bool sequential_filter;
};

/**
 * struct tide_lender - what a borrower knows of one lender
 *
 * Made and destroyed by borrowing.c; alive while configured. While enabled it
 * sits in one of TIDE_MAX_LENDERS slots, which is what a catalog entry names.
 */
struct tide_lender {
	char name[TIDE_NAME_MAX];
	struct tide_lender_config config;
	int slot;
	struct kref kref;
	struct completion released;

	enum tide_lender_state state;
	bool ready;		/* gets and puts may be handed over */
	bool held;		/* the lender wants no puts now */
	bool stalled;		/* a get was late and nothing came since, on any lane */
	bool closing;		/* being disabled */
	bool ending;		/* the session is: no further lane */
	u64 session;		/* whose pages the catalog has; 0: none */
	u64 offered;		/* in the hello of the GET channel, which the others name */
	bool resumed;		/* it was there before this connection */
	bool renounced;		/* it is not to go on, whatever the lender says */
	ktime_t resume_until;	/* by boottime: while it is not connected */
	unsigned int linger_ms;	/* how long the lender keeps it then */
	struct tide_epochs epochs;
	bool hurry;		/* something has changed: try again now */
	enum tide_reason reason;	/* why the last try was in vain */
	struct tide_agreed agreed;	/* limits, in the handshake of the GET channel */
	u64 granted_pages;
	atomic64_t catalog_pages;	/* without those that are forgotten */
	struct tide_ages ages;
	u64 ping_ns, rtt_ns;	/* last round trip and its moving average */
	struct tide_breaker breaker;
	bool filtering;		/* it does not get what is read sequentially */

	struct task_struct *main;
	struct mutex lane_mutex;	/* one lane connects at a time */
	struct mutex wire_mutex;	/* all connections, config.identity */
	u8 contribution[TIDE_HASH_SIZE];	/* what both have said in the handshake */
	struct delayed_work tick;

	/* gets */
	unsigned int lanes;		/* that this guest has use for */
	struct tide_lane lane[TIDE_MAX_LANES];
	bool resize_due;

	/* notes for the lender on pages it may drop */
	spinlock_t forget_lock;
	unsigned int forget_head, forget_tail;
	struct tide_forget_item *forget;

	/* puts */
	struct tide_link put;
	spinlock_t put_lock;		/* queue, batches */
	struct list_head put_queue;
	unsigned int put_queued;	/* pages in it */
	struct list_head batches_free, batches_sent;
	wait_queue_head_t put_wait;
	struct task_struct *sender;
	struct tide_batch *batch_store;
	struct tide_put_head *put_head;	/* the sender's frame, its pages: */
	struct bio_vec *put_bvec;
	struct page *put_sealed[TIDE_PUT_MAX];	/* encrypted, being sent */
	struct tide_cipher *put_cipher;
	u64 put_id;
	bool has_buffers;		/* counts among their users */

	struct tide_lender_stats stats;
	struct tide_lender_refusals __percpu *refused;
	struct tide_histogram get_latency, put_latency, ping_latency;
};

extern struct tide_lender __rcu *tide_lenders[TIDE_MAX_LENDERS];
extern atomic_t tide_lenders_ready;	/* how many take puts now */
extern unsigned int tide_lenders_enabled;

/* Has this guest any lender, connected or not? */
static inline bool tide_borrows(void)
{
	return READ_ONCE(tide_lenders_enabled);
}

/*
 * Is it left alone for now? It may be slower than the disk; for what is on no disk it is
 * left alone when it is slow or lost again and again.
 */
static inline bool tide_lender_avoided(const struct tide_lender *lender, bool diskless)
{
	if (diskless && READ_ONCE(lender->config.breaker) == TIDE_BREAKER_AUTOMATIC)
		return READ_ONCE(lender->breaker.flaps);
	return tide_breaker_open(&lender->breaker);
}

struct tide_lender *tide_lender_at(int slot);
void tide_lender_unasked(int slot, unsigned int pages);
void tide_lender_put(struct tide_lender *lender);
const char *tide_lender_state_name(const struct tide_lender *lender);
const char *tide_lender_reason(const struct tide_lender *lender);
bool tide_lenders_take_puts(bool diskless);
void tide_lender_break(struct tide_lender *lender);

static inline bool tide_lender_usable(const struct tide_lender *lender)
{
	return lender && READ_ONCE(lender->ready) && !READ_ONCE(lender->stalled);
}

#endif /* TIDE_PEER_H */
