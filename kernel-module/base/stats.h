/* SPDX-License-Identifier: GPL-2.0-only */
/* What is counted for the guest as a whole; control/show.c names the members. */
#ifndef TIDE_STATS_H
#define TIDE_STATS_H

#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/types.h>

/* Each processor counts its own: some are counted for every page that is evicted. */
struct tide_stats {
	s64 misses;	/* pages of known files, and blocks, read from disk */
	s64 gets_nomem;	/* windows read from disk: no request */
	s64 drop_gate;	/* puts refused: truncation or direct write */
	s64 drop_notready;	/* puts refused: no lender connected */
	s64 drop_nofile;	/* puts refused: no file descriptor to be had */
	s64 shrunk;	/* catalog entries given back: memory is short */
	s64 rejected;	/* handshakes refused on this guest's port */
	s64 warnings;	/* broken invariants: must be 0 */
	s64 verified;	/* hits that were compared with the disk */
	s64 verify_failed;	/* of those, not the same: must be 0 */
};

DECLARE_PER_CPU(struct tide_stats, tide_stats);

#define tide_count_pages(member, n)	this_cpu_add(tide_stats.member, n)
#define tide_count(member)		tide_count_pages(member, 1)

/* Says once a second at most that what must never happen has happened. */
#define tide_warn(fmt, ...)						\
	do {								\
		tide_count(warnings);					\
		pr_warn_ratelimited("warning: " fmt, ##__VA_ARGS__);	\
	} while (0)

#endif /* TIDE_STATS_H */
