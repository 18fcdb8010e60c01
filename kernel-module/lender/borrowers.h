/* SPDX-License-Identifier: GPL-2.0-only */
/* What a lender knows of its borrowers: borrowers.c. */
#ifndef TIDE_BORROWERS_H
#define TIDE_BORROWERS_H

#include <linux/atomic.h>
#include <linux/kfifo.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "base/broken.h"
#include "base/identity.h"
#include "uapi/wire.h"

struct tide_connection;
struct tide_shelf;

/* What the lender counts for one borrower. */
struct tide_borrower_stats {
	atomic64_t gets;	/* requests */
	atomic64_t get_hits;	/* pages sent */
	atomic64_t get_misses;	/* pages asked for and not there */
	atomic64_t puts;	/* pages stored */
	atomic64_t puts_refused;	/* pages not stored: memory is short */
	atomic64_t recycled;	/* oldest pages dropped for newer ones */
	atomic64_t reclaimed;	/* pages the kernel reclaimed */
	atomic64_t notices_sent;	/* pages named in eviction notices */
	atomic64_t bad_frames;	/* none, or not the borrower's */
};

/**
 * struct tide_borrower - what a lender knows of one borrower
 *
 * Made and destroyed by lending.c. The session members
 * are guarded by @mutex; @send_mutex orders frames on the GET channel; who has
 * it may wait for the borrower, so nobody takes it whom the borrower does not
 * concern.
 */
struct tide_borrower {
	char name[TIDE_NAME_MAX];
	struct tide_identity identity;	/* guarded by tide_lending_mutex */
	bool identity_set;
	u64 quota_bytes;
	bool enabled;

	struct list_head list;		/* tide_borrowers */
	struct list_head made;		/* tide_borrowers_made */
	struct mutex mutex;		/* the session: the members below */
	struct mutex send_mutex;	/* one frame at a time; @get */
	struct tide_connection *get, *put;
	struct tide_connection *lane[TIDE_MAX_LANES - 1];	/* beyond @get */
	u64 session;			/* 0: none that could go on */
	u64 offered;			/* in the hello of @get, which the others name */
	u64 ordinal;			/* of @get, or the last that there was */
	bool taking;			/* somebody waits to be @get */
	u64 newest;			/* version that it has put; the PUT channel's */
	u64 wanted_bytes;
	u64 granted_bytes;
	struct tide_shelf *shelf;	/* of the session, connected or not */
	ktime_t lost_at;		/* by boottime, while it is not */
	struct delayed_work expire;	/* ends it then */
	struct work_struct resize;	/* to what it wants now */
	bool grant_due;			/* it is to be told of a new grant */
	struct delayed_work notify;
	DECLARE_KFIFO_PTR(unwanted, struct tide_forget_item);	/* of the session: */
	struct work_struct drop;	/* drops these */
	struct tide_borrower_stats stats;
};

extern struct mutex tide_lending_mutex;		/* the borrowers and the connections */
extern struct list_head tide_borrowers;		/* the enabled ones */
extern struct list_head tide_borrowers_made;	/* all */

enum tide_answer_code tide_welcomes(const struct tide_identity *who);
struct tide_borrower *tide_known(const struct tide_identity *who);

/* With LENDER broken it cheats the borrowers that have such a name. */
static inline bool tide_cheats(const struct tide_borrower *borrower, const char *how)
{
	return tide_broken(LENDER) && !strcmp(borrower->name, how);
}

#endif /* TIDE_BORROWERS_H */
