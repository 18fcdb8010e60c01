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
 * do, both as measured until their last page, and resumes when they are a quarter
 * faster. Small reads are held against small ones, large reads against large
 * ones, and those that are slower stop; large ones of which there are none stop
 * and resume with the small ones. The lender is left alone when both have; with only the
 * large ones stopped, what is read in order does not go to it, as with the
 * sequential filter. While reads are stopped, one now and then goes to the lender
 * all the same, so that there is something to measure; when nobody asks for a
 * page that it has, the pings decide on the small ones. While they are not, one
 * in ten seconds goes to disk all the same if no other has, so that the disk's
 * figure is not old. What the disk took while it had to do all the work is
 * remembered for ten minutes: a pool that is slower than the idle disk may be the
 * better one.
 *
 * Both: a lender whose connection is lost again and again is left alone until the
 * third last loss is a minute old: each reader that waits for one of its pages has
 * waited for nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/ktime.h>

#include "base/broken.h"
#include "base/recent.h"
#include "base/trace.h"
#include "borrower/breaker.h"
#include "borrower/buffers.h"
#include "borrower/disk_latency.h"
#include "borrower/filter.h"
#include "borrower/peer.h"

#define TIDE_LONG_PINGS		64	/* one a second: about a minute */
#define TIDE_ENOUGH_PINGS	3
#define TIDE_ENOUGH_GETS	8
#define TIDE_ENOUGH_PROBES	3
#define TIDE_PROBE_EVERY	HZ	/* at least, */
#define TIDE_PROBE_PAUSE	32	/* and so many times as long as the last one took, */
#define TIDE_PROBE_MOST		(4 * HZ)	/* but three in TIDE_RECENT_SECONDS */
#define TIDE_REMEMBERED		(600 * HZ)
#define TIDE_LOSSES_SECONDS	60	/* within which TIDE_LOSSES connections were lost */

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
 * @size: of the read that it was part of
 * @ns: from the reader's request to the last folio unlocked, or to giving up
 *
 * Context: process.
 */
void tide_breaker_got(struct tide_lender *lender, enum tide_size size, u64 ns)
{
	struct tide_breaker_reads *reads = &lender->breaker.reads[size];

	spin_lock(&lender->breaker.lock);
	tide_recent_add(&reads->gets, ns);
	WRITE_ONCE(reads->got_ns, ns);
	spin_unlock(&lender->breaker.lock);
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
	int size;
	u64 age;

	spin_lock(&breaker->lock);
	means->short_ns = tide_recent_mean(&breaker->pings, &means->pings);
	means->long_ns = breaker->long_ns;
	for (size = 0; size < TIDE_SIZES; size++)
		means->reads[size].get_ns = tide_recent_mean(&breaker->reads[size].gets,
							     &means->reads[size].gets);
	age = breaker->unanswered ? ktime_get_ns() - breaker->unanswered : 0;
	spin_unlock(&breaker->lock);
	if (age > means->short_ns) {
		means->short_ns = div_u64(means->short_ns * means->pings + age,
					  means->pings + 1);
		means->pings++;
	}
	for (size = 0; size < TIDE_SIZES; size++)
		means->reads[size].disk_ns = tide_disk_mean(size);
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
 * pool gets now may not be: what it took while these were stopped counts, too.
 */
static u64 tide_disk_takes(const struct tide_breaker_reads *reads, u64 disk_ns)
{
	if (reads->open || !reads->busy_disk_ns ||
	    time_after(jiffies, reads->resumed + TIDE_REMEMBERED))
		return disk_ns;
	return max(disk_ns, reads->busy_disk_ns);
}

/*
 * How long a read of this size takes from the pool; 0: that cannot be said. A
 * probe is alone on its way, and of large reads there are two when all of them go
 * there: a window that is read, and the one ahead of it.
 */
static u64 tide_pool_takes(const struct tide_breaker_means *means,
			   enum tide_size size, bool open)
{
	unsigned int gets = means->reads[TIDE_SMALL].gets + means->reads[TIDE_LARGE].gets;

	if (means->reads[size].gets >= (open ? TIDE_ENOUGH_PROBES : TIDE_ENOUGH_GETS))
		return means->reads[size].get_ns * (open && size == TIDE_LARGE ? 2 : 1);
	/* A ping that waits behind the pages of large gets is no measure of a small one. */
	if (size == TIDE_LARGE || means->pings < TIDE_ENOUGH_PINGS ||
	    (open ? gets : means->reads[TIDE_LARGE].gets))
		return 0;
	return means->short_ns;
}

static bool tide_automatic_stop(const struct tide_breaker *breaker,
				const struct tide_breaker_means *means,
				enum tide_size size)
{
	const struct tide_breaker_reads *reads = &breaker->reads[size];
	u64 pool = tide_pool_takes(means, size, reads->open);
	u64 disk = tide_disk_takes(reads, means->reads[size].disk_ns);

	if (!pool)
		return reads->open;
	if (!disk)
		return false;
	return pool > (reads->open ? disk / 4 * 3 : disk);
}

/* Those of which there are none go with the small ones, but if they were too slow. */
static bool tide_automatic_stop_large(struct tide_breaker *breaker,
				      const struct tide_breaker_means *means)
{
	if (means->reads[TIDE_LARGE].gets)
		breaker->unheard = false;
	else if (!breaker->reads[TIDE_LARGE].open)
		breaker->unheard = breaker->reads[TIDE_SMALL].open;
	return breaker->unheard ? breaker->reads[TIDE_SMALL].open :
				  tide_automatic_stop(breaker, means, TIDE_LARGE);
}

/* Of the last losses, the next to be overwritten is the oldest. */
static bool tide_breaker_flaps(const struct tide_lender *lender)
{
	const struct tide_breaker *breaker = &lender->breaker;
	u32 oldest = breaker->lost[breaker->losses % TIDE_LOSSES];

	return lender->config.breaker != TIDE_BREAKER_OFF &&
	       breaker->losses >= TIDE_LOSSES &&
	       (u32)ktime_get_seconds() - oldest < TIDE_LOSSES_SECONDS;
}

static bool tide_breaker_stop(struct tide_lender *lender,
			      const struct tide_breaker_means *means,
			      enum tide_size size)
{
	if (lender->breaker.flaps)
		return true;
	switch (lender->config.breaker) {
	case TIDE_BREAKER_THRESHOLDS:
		return tide_thresholds_stop(&lender->config, means,
					    lender->breaker.reads[size].open);
	case TIDE_BREAKER_AUTOMATIC:
		return size == TIDE_LARGE ?
		       tide_automatic_stop_large(&lender->breaker, means) :
		       tide_automatic_stop(&lender->breaker, means, size);
	default:
		return false;
	}
}

/* Stops or resumes reads of one size; locked. Returns whether that is a change. */
static bool tide_reads_update(struct tide_lender *lender, enum tide_size size,
			      const struct tide_breaker_means *means)
{
	struct tide_breaker_reads *reads = &lender->breaker.reads[size];
	bool open = tide_breaker_stop(lender, means, size) && !tide_broken(BREAKER);

	if (open == reads->open)
		return false;
	WRITE_ONCE(reads->open, open);
	/* What was measured before tells nothing now. */
	memset(&reads->gets, 0, sizeof(reads->gets));
	reads->busy_disk_ns = open ? 0 : means->reads[size].disk_ns;
	reads->resumed = jiffies;
	return true;
}

static void tide_breaker_tell(struct tide_lender *lender, enum tide_size size,
			      const struct tide_breaker_means *means)
{
	bool open = tide_breaker_stops(&lender->breaker, size), large = size == TIDE_LARGE;

	if (open)
		atomic64_inc(large ? &lender->stats.breaker_opened_large :
				     &lender->stats.breaker_opened_small);
	trace_tidepool_breaker(lender->name, large, open, means->short_ns / 1000,
			       means->long_ns / 1000);
	pr_info_ratelimited("lenders/%s: latency breaker: %s reads %s: ping %llu us short, %llu us long, get %llu us, own disk %llu us\n",
			    lender->name, large ? "large" : "small", open ? "stopped" : "resumed",
			    means->short_ns / 1000, means->long_ns / 1000,
			    means->reads[size].get_ns / 1000,
			    means->reads[size].disk_ns / 1000);
}

/* Leaves the lender alone, or not; locked. Returns whether that is a change. */
static bool tide_breaker_alone(struct tide_lender *lender)
{
	bool open = tide_breaker_stops(&lender->breaker, TIDE_SMALL) &&
		    tide_breaker_stops(&lender->breaker, TIDE_LARGE);

	if (open == lender->breaker.open)
		return false;
	WRITE_ONCE(lender->breaker.open, open);
	if (open)
		atomic64_inc(&lender->stats.breaker_opened);
	return true;
}

/**
 * tide_breaker_update() - stop using a lender, or use it again
 * @lender: enabled
 *
 * Context: process; each second, and when the configuration changed.
 */
void tide_breaker_update(struct tide_lender *lender)
{
	bool changed[TIDE_SIZES], alone;
	struct tide_breaker_means means;
	int size;

	tide_breaker_means(lender, &means);
	spin_lock(&lender->breaker.lock);
	WRITE_ONCE(lender->breaker.flaps, tide_breaker_flaps(lender));
	for (size = 0; size < TIDE_SIZES; size++)
		changed[size] = tide_reads_update(lender, size, &means);
	alone = tide_breaker_alone(lender);
	tide_filter_refresh(lender);
	spin_unlock(&lender->breaker.lock);
	for (size = 0; size < TIDE_SIZES; size++)
		if (changed[size])
			tide_breaker_tell(lender, size, &means);
	if (alone)
		tide_buffers_refit();
}

/**
 * tide_breaker_lost() - a connection that stood was lost
 * @lender: enabled
 *
 * Context: process.
 */
void tide_breaker_lost(struct tide_lender *lender)
{
	struct tide_breaker *breaker = &lender->breaker;

	spin_lock(&breaker->lock);
	breaker->lost[breaker->losses++ % TIDE_LOSSES] = ktime_get_seconds();
	spin_unlock(&breaker->lock);
	tide_breaker_update(lender);
}

/* May a request go to a lender whose reads of this size are stopped? */
static bool tide_breaker_probes(struct tide_breaker_reads *reads)
{
	unsigned long next = READ_ONCE(reads->next_probe);
	unsigned long pause = nsecs_to_jiffies(READ_ONCE(reads->got_ns)) * TIDE_PROBE_PAUSE;

	pause = clamp_t(unsigned long, pause, TIDE_PROBE_EVERY, TIDE_PROBE_MOST);
	return time_after_eq(jiffies, next) &&
	       cmpxchg(&reads->next_probe, next, jiffies + pause) == next;
}

/**
 * tide_breaker_admits() - may this request go to the lender?
 * @lender: the lender
 * @size: of the read
 *
 * Context: any.
 */
bool tide_breaker_admits(struct tide_lender *lender, enum tide_size size)
{
	struct tide_breaker_reads *reads = &lender->breaker.reads[size];

	if (READ_ONCE(lender->config.breaker) != TIDE_BREAKER_AUTOMATIC)
		return !READ_ONCE(reads->open);
	if (!READ_ONCE(reads->open))
		return !tide_disk_due(size);
	return !READ_ONCE(lender->breaker.flaps) && tide_breaker_probes(reads);
}
EXPORT_SYMBOL_GPL(tide_breaker_admits);

/* The lender in a slot; if it is gone the pages are counted. */
static struct tide_lender *tide_lender_there(int slot, unsigned int pages)
{
	struct tide_lender *lender = tide_lender_at(slot);

	if (!lender)
		tide_lender_unasked(slot, pages);
	return lender;
}

static struct tide_lender *tide_lender_skip(struct tide_lender *lender, unsigned int pages)
{
	atomic64_add(pages, &lender->stats.get_skipped);
	tide_lender_put(lender);
	return NULL;
}

/**
 * tide_lender_to_ask() - the lender in a slot, if a request may go to it
 * @slot: of the lender, as the catalog says
 * @size: of the read
 * @pages: that are wanted; they are counted if it may not
 *
 * Context: any.
 * Return: the lender, for tide_lender_put(), or NULL.
 */
struct tide_lender *tide_lender_to_ask(int slot, enum tide_size size, unsigned int pages)
{
	struct tide_lender *lender = tide_lender_there(slot, pages);

	if (!lender || tide_breaker_admits(lender, size))
		return lender;
	return tide_lender_skip(lender, pages);
}
EXPORT_SYMBOL_GPL(tide_lender_to_ask);

/**
 * tide_lender_to_ask_alone() - likewise, for what is on no disk
 * @slot: of the lender, as the catalog says
 * @pages: that are wanted; they are counted if it may not
 *
 * There is nothing that the lender could be slower than, and no read that might as well
 * measure the disk.
 *
 * Context: any.
 * Return: the lender, for tide_lender_put(), or NULL.
 */
struct tide_lender *tide_lender_to_ask_alone(int slot, unsigned int pages)
{
	struct tide_lender *lender = tide_lender_there(slot, pages);

	if (!lender || !tide_lender_avoided(lender, true))
		return lender;
	return tide_lender_skip(lender, pages);
}
EXPORT_SYMBOL_GPL(tide_lender_to_ask_alone);

/* Nothing is known of how long reads of one size take; locked. */
static void tide_reads_reset(struct tide_breaker_reads *reads, bool open)
{
	memset(&reads->gets, 0, sizeof(reads->gets));
	reads->got_ns = 0;
	reads->next_probe = jiffies;
	WRITE_ONCE(reads->open, open);
	if (!open)
		reads->busy_disk_ns = 0;
}

/**
 * tide_breaker_reset() - a connection begins: what was measured is forgotten
 * @lender: the lender
 * @losses: whether the connections that were lost are forgotten, too
 *
 * What was late because nobody answered says nothing of the lender that is back, so
 * its pages are asked for at once, unless it is lost again and again.
 *
 * Context: process.
 */
void tide_breaker_reset(struct tide_lender *lender, bool losses)
{
	struct tide_breaker *breaker = &lender->breaker;
	int size;

	spin_lock(&breaker->lock);
	if (losses)
		breaker->losses = 0;
	WRITE_ONCE(breaker->flaps, tide_breaker_flaps(lender));
	memset(&breaker->pings, 0, sizeof(breaker->pings));
	breaker->long_ns = 0;
	breaker->long_count = 0;
	breaker->unanswered = 0;
	breaker->unheard = false;
	for (size = 0; size < TIDE_SIZES; size++)
		tide_reads_reset(&breaker->reads[size], breaker->flaps);
	WRITE_ONCE(breaker->open, breaker->flaps);
	tide_filter_refresh(lender);
	spin_unlock(&breaker->lock);
}

/**
 * tide_breaker_set() - change what the breaker goes by
 * @lender: the lender
 * @breaker: mode
 * @peak: thresholds of the short mean
 * @mean: thresholds of the moving average
 *
 * Context: process, under tide_control_mutex.
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
