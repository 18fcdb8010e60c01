/* SPDX-License-Identifier: GPL-2.0-only */
/* What is counted for the guest as a whole; control/show.c names the members. */
#ifndef TIDE_STATS_H
#define TIDE_STATS_H

#include <linux/atomic.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>

struct tide_stats {
	atomic64_t misses;	/* pages of known files read from disk */
	atomic64_t gets_nomem;	/* windows read from disk: no request */
	atomic64_t drop_gate;	/* puts refused: truncation or direct write */
	atomic64_t drop_notready;	/* puts refused: no lender connected */
	atomic64_t drop_nofile;	/* puts refused: no file descriptor free */
	atomic64_t shrunk;	/* catalog entries given back: memory is short */
	atomic64_t rejected;	/* handshakes refused on this guest's port */
	atomic64_t warnings;	/* broken invariants: must be 0 */
	atomic64_t verified;	/* hits that were compared with the disk */
	atomic64_t verify_failed;	/* of those, not the same: must be 0 */
};

extern struct tide_stats tide_stats;

/* Says once a second at most that what must never happen has happened. */
#define tide_warn(fmt, ...)						\
	do {								\
		atomic64_inc(&tide_stats.warnings);			\
		pr_warn_ratelimited("warning: " fmt, ##__VA_ARGS__);	\
	} while (0)

#endif /* TIDE_STATS_H */
