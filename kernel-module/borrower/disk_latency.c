// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long this guest's own disk takes: reads that the file system does for
 * files of the pool, small ones and large ones, from just before they are handed
 * over until the last folio is unlocked. They are sampled, one at a time and at
 * most one of a size a jiffy; a work item waits for the folio, nothing is
 * allocated. Whoever is told when a read ends measures it himself.
 *
 * And the queue for those who wait for it, or read from it in a reader's place.
 */
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/workqueue.h>

#include "base/histogram.h"
#include "base/recent.h"
#include "borrower/disk_latency.h"

#define TIDE_DISK_OLD	(10 * HZ)	/* a measurement older than this is renewed */

struct workqueue_struct *tide_disk_queue;
EXPORT_SYMBOL_GPL(tide_disk_queue);

struct tide_histogram tide_disk_latency;

static void tide_disk_wait(struct work_struct *work);

static struct {
	unsigned long busy;		/* bit 0: a sample is being taken */
	struct folio *folio;
	enum tide_size size;
	ktime_t start;
	struct work_struct work;
	unsigned long last[TIDE_SIZES];	/* jiffies of the newest sample */

	spinlock_t lock;		/* the means: */
	struct tide_recent recent[TIDE_SIZES];
	u64 mean_ns[TIDE_SIZES];	/* the last ones known */
} tide_disk = {
	.last = { [0 ... TIDE_SIZES - 1] = INITIAL_JIFFIES },
	.work = __WORK_INITIALIZER(tide_disk.work, tide_disk_wait),
	.lock = __SPIN_LOCK_UNLOCKED(tide_disk.lock),
};

int tide_disk_init(void)
{
	tide_disk_queue = alloc_workqueue("tidepool_disk",
					  WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 0);
	return tide_disk_queue ? 0 : -ENOMEM;
}

void tide_disk_exit(void)
{
	destroy_workqueue(tide_disk_queue);
}

/**
 * tide_disk_wanted() - is a read to be measured?
 * @size: of the read
 *
 * Context: any.
 * Return: true once a jiffy; tide_disk_took() may then follow.
 */
bool tide_disk_wanted(enum tide_size size)
{
	unsigned long last = READ_ONCE(tide_disk.last[size]);

	return time_after(jiffies, last) &&
	       cmpxchg(&tide_disk.last[size], last, jiffies) == last;
}
EXPORT_SYMBOL_GPL(tide_disk_wanted);

/**
 * tide_disk_took() - a read from disk has been measured
 * @size: of the read
 * @ns: how long it took
 *
 * Context: any.
 */
void tide_disk_took(enum tide_size size, u64 ns)
{
	unsigned long flags;

	tide_histogram_add(&tide_disk_latency, ns);
	spin_lock_irqsave(&tide_disk.lock, flags);
	tide_recent_add(&tide_disk.recent[size], ns);
	spin_unlock_irqrestore(&tide_disk.lock, flags);
}
EXPORT_SYMBOL_GPL(tide_disk_took);

static void tide_disk_end(void)
{
	struct folio *folio = tide_disk.folio;

	if (folio_test_uptodate(folio))
		tide_disk_took(tide_disk.size,
			       ktime_to_ns(ktime_sub(ktime_get(), tide_disk.start)));
	folio_put(folio);
	clear_bit_unlock(0, &tide_disk.busy);
}

static void tide_disk_wait(struct work_struct *work)
{
	folio_wait_locked(tide_disk.folio);
	tide_disk_end();
}

/**
 * tide_disk_start() - folios are about to be read from disk
 * @folio: the last of them, locked
 * @size: of the read
 *
 * Context: process.
 * Return: whether this one is measured; tide_disk_submitted() then follows.
 */
bool tide_disk_start(struct folio *folio, enum tide_size size)
{
	if (!time_after(jiffies, READ_ONCE(tide_disk.last[size])) ||
	    test_and_set_bit_lock(0, &tide_disk.busy))
		return false;
	WRITE_ONCE(tide_disk.last[size], jiffies);
	folio_get(folio);
	tide_disk.folio = folio;
	tide_disk.size = size;
	tide_disk.start = ktime_get();
	return true;
}

/**
 * tide_disk_submitted() - the file system has been asked for the folios
 *
 * Context: process.
 */
void tide_disk_submitted(void)
{
	if (folio_test_locked(tide_disk.folio))
		queue_work(tide_disk_queue, &tide_disk.work);
	else
		tide_disk_end();
}

/**
 * tide_disk_due() - is it time to read from disk just to know how long it takes?
 * @size: of the read
 *
 * Context: any.
 * Return: true for one caller, when nothing has been measured for long.
 */
bool tide_disk_due(enum tide_size size)
{
	unsigned long last = READ_ONCE(tide_disk.last[size]);

	return time_after(jiffies, last + TIDE_DISK_OLD) &&
	       cmpxchg(&tide_disk.last[size], last, jiffies - 1) == last;
}

/**
 * tide_disk_mean() - how long a read from disk takes
 * @size: of the read
 *
 * Context: process.
 * Return: nanoseconds: the mean of the last seconds in which there were reads,
 * 0 when there was none yet.
 */
u64 tide_disk_mean(enum tide_size size)
{
	unsigned long flags;
	unsigned int count;
	u64 ns;

	spin_lock_irqsave(&tide_disk.lock, flags);
	ns = tide_recent_mean(&tide_disk.recent[size], &count);
	if (count)
		tide_disk.mean_ns[size] = ns;
	ns = tide_disk.mean_ns[size];
	spin_unlock_irqrestore(&tide_disk.lock, flags);
	return ns;
}
