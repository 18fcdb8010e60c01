// SPDX-License-Identifier: GPL-2.0-only
/*
 * The latency breaker (Puma, sections 3.3.2 and 4.5). A pool that answers
 * slowly is worse than no pool, so a borrower stops using a lender while it is
 * slow and reads from its disk. What the lender has stays in the catalog, and
 * stays true: when it is fast again its pages are there.
 *
 * Thresholds: a short mean of the pings (the last 15 s) sees a peak, a moving
 * average (about a minute) sees what is slow all the time. Each has a threshold
 * to stop at and a lower one to resume below.
 *
 * Automatic: stops while gets take longer than reads of this guest's own disk
 * do, both as measured, and resumes when they are a quarter faster. While
 * stopped, one small request a second goes to the lender all the same, so that there
 * is something to measure; when nobody asks for a page that it has, the pings
 * decide. While not stopped, a read every ten seconds goes to disk all the
 * same if nothing else has gone there, so that the disk's figure is not old.
 * What the disk took while it had to do all the work is remembered for ten
 * minutes: a pool that is slower than the idle disk may be the better one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>

#include "buffers.h"
#include "trace.h"

#define TIDE_LONG_PINGS		64	/* one a second: about a minute */
#define TIDE_ENOUGH_PINGS	3
#define TIDE_ENOUGH_GETS	8
#define TIDE_ENOUGH_PROBES	3
#define TIDE_PROBE_EVERY	HZ
#define TIDE_REMEMBERED		(600 * HZ)

/* ------------------------------------------------------------------ */
/* the mean of the last seconds					       */
/* ------------------------------------------------------------------ */

static void tide_recent_turn(struct tide_recent *recent)
{
	u32 now = ktime_get_seconds();

	if (now - recent->second >= TIDE_RECENT_SECONDS)
		memset(recent->slot, 0, sizeof(recent->slot));
	else
		while (recent->second < now)
			memset(&recent->slot[++recent->second % TIDE_RECENT_SECONDS],
			       0, sizeof(recent->slot[0]));
	recent->second = now;
}

/**
 * tide_recent_add() - note one duration
 * @recent: locked by the caller
 * @ns: duration in nanoseconds
 */
void tide_recent_add(struct tide_recent *recent, u64 ns)
{
	struct tide_recent_slot *slot;

	tide_recent_turn(recent);
	slot = &recent->slot[recent->second % TIDE_RECENT_SECONDS];
	slot->ns += ns;
	slot->count++;
}

/**
 * tide_recent_mean() - the mean of the last TIDE_RECENT_SECONDS
 * @recent: locked by the caller
 * @count: set to how many durations it is made of
 *
 * Return: nanoseconds, 0 without any.
 */
u64 tide_recent_mean(struct tide_recent *recent, unsigned int *count)
{
	u64 ns = 0;
	int i;

	tide_recent_turn(recent);
	*count = 0;
	for (i = 0; i < TIDE_RECENT_SECONDS; i++) {
		ns += recent->slot[i].ns;
		*count += recent->slot[i].count;
	}
	return *count ? div_u64(ns, *count) : 0;
}

/* ------------------------------------------------------------------ */
/* what is measured						       */
/* ------------------------------------------------------------------ */

/**
 * tide_breaker_pinged() - a ping is on its way
 * @lender: the lender
 * @sent_ns: when it was sent
 *
 * While it is not answered it counts with its age.
 *
 * Context: process.
 */
void tide_breaker_pinged(struct tide_lender *lender, u64 sent_ns)
{
	struct tide_breaker *breaker = &lender->breaker;

	spin_lock(&breaker->lock);
	if (!breaker->unanswered)
		breaker->unanswered = sent_ns;
	spin_unlock(&breaker->lock);
}

/**
 * tide_breaker_ponged() - a ping was answered
 * @lender: the lender
 * @sent_ns: when it was sent
 * @rtt_ns: how long it took
 *
 * Context: the receiving thread.
 */
void tide_breaker_ponged(struct tide_lender *lender, u64 sent_ns, u64 rtt_ns)
{
	struct tide_breaker *breaker = &lender->breaker;

	spin_lock(&breaker->lock);
	if (sent_ns >= breaker->unanswered)
		breaker->unanswered = 0;
	tide_recent_add(&breaker->pings, rtt_ns);
	if (breaker->long_count < TIDE_LONG_PINGS)
		breaker->long_count++;
	breaker->long_ns += div_s64((s64)(rtt_ns - breaker->long_ns),
				    breaker->long_count);
	spin_unlock(&breaker->lock);
}

/**
 * tide_breaker_got() - a request was answered, or given up
 * @lender: the lender
 * @ns: from the reader's request to the first folio unlocked, or to giving up
 *
 * Context: process.
 */
void tide_breaker_got(struct tide_lender *lender, u64 ns)
{
	struct tide_breaker *breaker = &lender->breaker;

	spin_lock(&breaker->lock);
	tide_recent_add(&breaker->gets, ns);
	spin_unlock(&breaker->lock);
}

/**
 * tide_breaker_means() - the averages that the breaker goes by
 * @lender: the lender
 * @means: set; 0 is unknown
 *
 * Context: process.
 */
void tide_breaker_means(struct tide_lender *lender, struct tide_breaker_means *means)
{
	struct tide_breaker *breaker = &lender->breaker;
	u64 age;

	spin_lock(&breaker->lock);
	means->short_ns = tide_recent_mean(&breaker->pings, &means->pings);
	means->long_ns = breaker->long_ns;
	means->get_ns = tide_recent_mean(&breaker->gets, &means->gets);
	age = breaker->unanswered ? ktime_get_ns() - breaker->unanswered : 0;
	spin_unlock(&breaker->lock);
	if (age > means->short_ns) {
		means->short_ns = div_u64(means->short_ns * means->pings + age,
					  means->pings + 1);
		means->pings++;
	}
	means->disk_ns = tide_disk_mean();
}

/* ------------------------------------------------------------------ */
/* to stop or not to stop					       */
/* ------------------------------------------------------------------ */

static bool tide_thresholds_stop(const struct tide_lender_config *config,
				 const struct tide_breaker_means *means, bool open)
{
	const struct tide_thresholds *peak = &config->breaker_short;
	const struct tide_thresholds *mean = &config->breaker_long;

	if (means->pings < TIDE_ENOUGH_PINGS)
		return open;
	if (open)
		return means->short_ns >= peak->resume_us * NSEC_PER_USEC ||
		       means->long_ns >= mean->resume_us * NSEC_PER_USEC;
	return means->short_ns >= peak->stop_us * NSEC_PER_USEC ||
	       means->long_ns >= mean->stop_us * NSEC_PER_USEC;
}

/*
 * A disk that has little to do is quick, one that gets all the reads that the
 * pool gets now may not be: what it took while the breaker was open counts, too.
 */
static u64 tide_disk_takes(const struct tide_breaker *breaker,
			   const struct tide_breaker_means *means)
{
	if (breaker->open || !breaker->busy_disk_ns ||
	    time_after(jiffies, breaker->resumed + TIDE_REMEMBERED))
		return means->disk_ns;
	return max(means->disk_ns, breaker->busy_disk_ns);
}

static bool tide_automatic_stop(const struct tide_breaker *breaker,
				const struct tide_breaker_means *means)
{
	u64 pool, disk = tide_disk_takes(breaker, means);
	bool open = breaker->open;

	if (means->gets >= (open ? TIDE_ENOUGH_PROBES : TIDE_ENOUGH_GETS))
		pool = means->get_ns;
	else if (means->pings >= TIDE_ENOUGH_PINGS && !(open && means->gets))
		pool = means->short_ns;
	else
		return open;
	if (!disk)
		return false;
	return pool > (open ? disk / 4 * 3 : disk);
}

static bool tide_breaker_stop(const struct tide_lender *lender,
			      const struct tide_breaker_means *means)
{
	switch (lender->config.breaker) {
	case TIDE_BREAKER_THRESHOLDS:
		return tide_thresholds_stop(&lender->config, means,
					    lender->breaker.open);
	case TIDE_BREAKER_AUTOMATIC:
		return tide_automatic_stop(&lender->breaker, means);
	default:
		return false;
	}
}

/**
 * tide_breaker_update() - stop using a lender, or use it again
 * @lender: enabled
 *
 * Context: process; each second, and when the configuration changed.
 */
void tide_breaker_update(struct tide_lender *lender)
{
	struct tide_breaker *breaker = &lender->breaker;
	struct tide_breaker_means means;
	bool open, changed;

	tide_breaker_means(lender, &means);
	spin_lock(&breaker->lock);
	open = tide_breaker_stop(lender, &means) && !tide_broken(BREAKER);
	changed = open != breaker->open;
	WRITE_ONCE(breaker->open, open);
	if (changed) {	/* what was measured before tells nothing now */
		memset(&breaker->gets, 0, sizeof(breaker->gets));
		breaker->busy_disk_ns = open ? 0 : means.disk_ns;
		breaker->resumed = jiffies;
	}
	spin_unlock(&breaker->lock);
	if (!changed)
		return;
	tide_buffers_refit();
	if (open)
		atomic64_inc(&lender->stats.breaker_opened);
	trace_tidepool_breaker(lender, open, means.short_ns / 1000,
			       means.long_ns / 1000);
	pr_info_ratelimited("lenders/%s: latency breaker: %s: ping %llu us short, %llu us long, get %llu us, own disk %llu us\n",
			    lender->name, open ? "stopped" : "resumed",
			    means.short_ns / 1000, means.long_ns / 1000,
			    means.get_ns / 1000, means.disk_ns / 1000);
}

/**
 * tide_breaker_admits() - may this request go to the lender?
 * @lender: the lender
 *
 * Context: any.
 */
bool tide_breaker_admits(struct tide_lender *lender)
{
	unsigned long next = READ_ONCE(lender->breaker.next_probe);

	if (READ_ONCE(lender->config.breaker) != TIDE_BREAKER_AUTOMATIC)
		return !tide_breaker_open(lender);
	if (!tide_breaker_open(lender))
		return !tide_disk_due();
	return time_after_eq(jiffies, next) &&
	       cmpxchg(&lender->breaker.next_probe, next,
		       jiffies + TIDE_PROBE_EVERY) == next;
}

/**
 * tide_breaker_reset() - a session begins: what was measured is forgotten
 * @lender: the lender
 * @closed: whether it was stopped, too
 *
 * Context: process.
 */
void tide_breaker_reset(struct tide_lender *lender, bool closed)
{
	struct tide_breaker *breaker = &lender->breaker;

	spin_lock(&breaker->lock);
	memset(&breaker->pings, 0, sizeof(breaker->pings));
	memset(&breaker->gets, 0, sizeof(breaker->gets));
	breaker->long_ns = 0;
	breaker->long_count = 0;
	breaker->unanswered = 0;
	breaker->next_probe = jiffies;
	if (closed) {
		WRITE_ONCE(breaker->open, false);
		breaker->busy_disk_ns = 0;
	}
	spin_unlock(&breaker->lock);
}

/**
 * tide_breaker_set() - change what the breaker goes by
 * @lender: the lender
 * @breaker: mode
 * @peak: thresholds of the short mean
 * @mean: thresholds of the moving average
 *
 * Context: process, under control.c's mutex.
 */
void tide_breaker_set(struct tide_lender *lender, enum tide_breaker_mode breaker,
		      const struct tide_thresholds *peak,
		      const struct tide_thresholds *mean)
{
	struct tide_lender_config *config = &lender->config;

	spin_lock(&lender->breaker.lock);
	WRITE_ONCE(config->breaker, breaker);
	config->breaker_short = *peak;
	config->breaker_long = *mean;
	spin_unlock(&lender->breaker.lock);
	if (lender->state != TIDE_LENDER_DISABLED)
		tide_breaker_update(lender);
}
