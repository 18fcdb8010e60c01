// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counters as text.
 */
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "base/stats.h"
#include "borrower/buffers.h"
#include "borrower/catalog_table.h"
#include "borrower/disk_latency.h"
#include "borrower/peer.h"
#include "control/show.h"
#include "lender/borrowers.h"
#include "lender/giveback.h"
#include "pagecache/hooks.h"
#include "pagecache/inflight.h"

/* ------------------------------------------------------------------ */
/* counters							       */
/* ------------------------------------------------------------------ */

struct tide_counter {
	const char *name;
	size_t offset;
};

#define TIDE_COUNTER(type, member)	{ #member, offsetof(struct type, member) }

static const struct tide_counter tide_lender_counters[] = {
	TIDE_COUNTER(tide_lender_stats, get_hits),
	TIDE_COUNTER(tide_lender_stats, get_hits_buffer),
	TIDE_COUNTER(tide_lender_stats, get_misses),
	TIDE_COUNTER(tide_lender_stats, get_late),
	TIDE_COUNTER(tide_lender_stats, get_errors),
	TIDE_COUNTER(tide_lender_stats, gets_sent),
	TIDE_COUNTER(tide_lender_stats, puts),
	TIDE_COUNTER(tide_lender_stats, puts_sent),
	TIDE_COUNTER(tide_lender_stats, put_requests),
	TIDE_COUNTER(tide_lender_stats, drop_nobuffer),
	TIDE_COUNTER(tide_lender_stats, drop_refused),
	TIDE_COUNTER(tide_lender_stats, drop_nomem),
	TIDE_COUNTER(tide_lender_stats, drop_stale),
	TIDE_COUNTER(tide_lender_stats, drop_lost),
	TIDE_COUNTER(tide_lender_stats, evicted_notices),
	TIDE_COUNTER(tide_lender_stats, connects),
	TIDE_COUNTER(tide_lender_stats, disconnects),
	TIDE_COUNTER(tide_lender_stats, resumes),
	TIDE_COUNTER(tide_lender_stats, get_corrupt),
	TIDE_COUNTER(tide_lender_stats, get_incomplete),
	TIDE_COUNTER(tide_lender_stats, get_unasked),
	TIDE_COUNTER(tide_lender_stats, bad_frames),
	TIDE_COUNTER(tide_lender_stats, breaker_opened),
	TIDE_COUNTER(tide_lender_stats, breaker_opened_small),
	TIDE_COUNTER(tide_lender_stats, breaker_opened_large),
	TIDE_COUNTER(tide_lender_stats, get_skipped),
	TIDE_COUNTER(tide_lender_stats, get_skipped_sequential),
};

static const struct tide_counter tide_lender_refusal_counters[] = {
	TIDE_COUNTER(tide_lender_refusals, drop_breaker),
	TIDE_COUNTER(tide_lender_refusals, drop_held),
	TIDE_COUNTER(tide_lender_refusals, drop_sequential),
};

static const struct tide_counter tide_borrower_counters[] = {
	TIDE_COUNTER(tide_borrower_stats, gets),
	TIDE_COUNTER(tide_borrower_stats, get_hits),
	TIDE_COUNTER(tide_borrower_stats, get_misses),
	TIDE_COUNTER(tide_borrower_stats, puts),
	TIDE_COUNTER(tide_borrower_stats, puts_refused),
	TIDE_COUNTER(tide_borrower_stats, recycled),
	TIDE_COUNTER(tide_borrower_stats, reclaimed),
	TIDE_COUNTER(tide_borrower_stats, notices_sent),
	TIDE_COUNTER(tide_borrower_stats, bad_frames),
};

static const struct tide_counter tide_counters[] = {
	TIDE_COUNTER(tide_stats, misses),
	TIDE_COUNTER(tide_stats, gets_nomem),
	TIDE_COUNTER(tide_stats, drop_gate),
	TIDE_COUNTER(tide_stats, drop_notready),
	TIDE_COUNTER(tide_stats, drop_nofile),
	TIDE_COUNTER(tide_stats, shrunk),
	TIDE_COUNTER(tide_stats, rejected),
	TIDE_COUNTER(tide_stats, warnings),
	TIDE_COUNTER(tide_stats, verified),
	TIDE_COUNTER(tide_stats, verify_failed),
};

static int tide_counters_show(const struct tide_counter *counter, size_t n,
			      const void *stats, char *page)
{
	int len = 0;
	size_t i;

	for (i = 0; i < n; i++)
		len += sysfs_emit_at(page, len, "%s %lld\n", counter[i].name,
				     (s64)atomic64_read(stats + counter[i].offset));
	return len;
}

static s64 tide_counter_sum(const s64 __percpu *counter)
{
	s64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

/* Of counters that each processor has for itself. */
static int tide_sums_show(const struct tide_counter *counter, size_t n,
			  const void __percpu *stats, char *page, int at)
{
	int len = 0;
	size_t i;

	for (i = 0; i < n; i++)
		len += sysfs_emit_at(page, at + len, "%s %lld\n", counter[i].name,
				     tide_counter_sum(stats + counter[i].offset));
	return len;
}

/**
 * tide_show_lender_stats() - what the borrower counts for one lender
 * @lender: the lender
 * @page: where to, one page
 *
 * Return: number of bytes written.
 */
int tide_show_lender_stats(const struct tide_lender *lender, char *page)
{
	int len = tide_counters_show(tide_lender_counters, ARRAY_SIZE(tide_lender_counters),
				     &lender->stats, page);

	return len + tide_sums_show(tide_lender_refusal_counters,
				    ARRAY_SIZE(tide_lender_refusal_counters),
				    lender->refused, page, len);
}

/**
 * tide_show_borrower_stats() - what the lender counts for one borrower
 * @stats: the counters
 * @page: where to, one page
 *
 * Return: number of bytes written.
 */
int tide_show_borrower_stats(const struct tide_borrower_stats *stats, char *page)
{
	return tide_counters_show(tide_borrower_counters,
				  ARRAY_SIZE(tide_borrower_counters), stats, page);
}

/**
 * tide_show_stats() - the figures of the guest as a whole
 * @page: where to, one page
 *
 * Return: number of bytes written.
 */
int tide_show_stats(char *page)
{
	unsigned int total, free;
	int len = tide_sums_show(tide_counters, ARRAY_SIZE(tide_counters), &tide_stats, page, 0);

	tide_buffers_count(&total, &free);
	len += sysfs_emit_at(page, len, "hooks %d\nfiles %u\ndirect_writes %u\n",
			     tide_hooks_are_in(), tide_catalog_objects(), tide_writes_noted());
	len += sysfs_emit_at(page, len, "buffers_total %u\nbuffers_free %u\n",
			     total, free);
	len += sysfs_emit_at(page, len, "lent_pages %llu\n", tide_shelf_lent());
	len += sysfs_emit_at(page, len, "disk_us %llu\ndisk_us_large %llu\n",
			     tide_disk_mean(TIDE_SMALL) / 1000,
			     tide_disk_mean(TIDE_LARGE) / 1000);
	return len;
}
