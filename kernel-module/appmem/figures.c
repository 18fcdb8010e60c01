// SPDX-License-Identifier: GPL-2.0-only
/*
 * What all pools together hold, and what was counted since the module was loaded: for who
 * looks after the guest. Pools without a name are in no list, and what a pool has counted
 * goes with it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "appmem/account.h"
#include "appmem/figures.h"
#include "appmem/front.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/spill.h"
#include "appmem/times.h"

static LIST_HEAD(tide_figures_pools);
static struct tidepool_stats tide_figures_gone;	/* counters of pools that are */
static struct tide_times tide_figures_gone_times;	/* likewise */
static DEFINE_MUTEX(tide_figures_mutex);	/* all of it; nothing is waited for with it held */

/**
 * tide_figures_add() - a pool is there
 * @pool: the pool
 *
 * Context: process.
 */
void tide_figures_add(struct tide_app_pool *pool)
{
	mutex_lock(&tide_figures_mutex);
	list_add(&pool->every, &tide_figures_pools);
	mutex_unlock(&tide_figures_mutex);
}

/* What only grows. */
static void tide_figures_count(struct tidepool_stats *sum, const struct tidepool_stats *stats)
{
	sum->hits += stats->hits;
	sum->misses += stats->misses;
	sum->lost += stats->lost;
	sum->puts += stats->puts;
	sum->deletes += stats->deletes;
	sum->expired += stats->expired;
	sum->moved += stats->moved;
	sum->local += stats->local;
	sum->spilled += stats->spilled;
}

/* What a pool has counted. */
static struct tidepool_stats tide_figures_of(const struct tide_app_pool *pool)
{
	/* Its lock may be held for long. */
	struct tidepool_stats stats = data_race(pool->stats);

	stats.spilled = pool->spill ? tide_spill_reads(pool->spill) : 0;
	return stats;
}

/**
 * tide_figures_remove() - a pool is gone, and what it has counted stays
 * @pool: that nobody uses
 *
 * Context: process.
 */
void tide_figures_remove(struct tide_app_pool *pool)
{
	struct tidepool_stats stats = tide_figures_of(pool);

	mutex_lock(&tide_figures_mutex);
	list_del(&pool->every);
	tide_figures_count(&tide_figures_gone, &stats);
	tide_times_add(&tide_figures_gone_times, pool->times);
	mutex_unlock(&tide_figures_mutex);
}

/* Returns how many pools there are. */
static unsigned int tide_figures_sum(struct tidepool_stats *sum)
{
	struct tide_app_pool *pool;
	unsigned int pools = 0;

	mutex_lock(&tide_figures_mutex);
	*sum = tide_figures_gone;
	list_for_each_entry(pool, &tide_figures_pools, every) {
		struct tidepool_stats stats = tide_figures_of(pool);

		tide_figures_count(sum, &stats);
		sum->values += stats.values;
		sum->value_bytes += stats.value_bytes;
		pools++;
	}
	mutex_unlock(&tide_figures_mutex);
	return pools;
}

/**
 * tide_figures_show() - a line for each figure
 * @page: where to, one page
 *
 * Context: process.
 * Return: number of bytes written.
 */
int tide_figures_show(char *page)
{
	struct tidepool_stats sum;
	unsigned int pools = tide_figures_sum(&sum);

	return sysfs_emit(page, "bytes %llu\npools %u\nvalues %llu\nvalue_bytes %llu\nhits %llu\n"
			  "misses %llu\nlost %llu\nputs %llu\ndeletes %llu\nexpired %llu\nmoved %llu\n"
			  "local %llu\nspilled %llu\nfront_bytes %llu\npage_hits %llu\n",
			  tide_account_all(),
			  pools, sum.values, sum.value_bytes, sum.hits, sum.misses, sum.lost,
			  sum.puts, sum.deletes, sum.expired, sum.moved, sum.local, sum.spilled,
			  tide_front_bytes(), tide_app_page_hits());
}

static void tide_figures_sum_times(struct tide_times *sum)
{
	struct tide_app_pool *pool;

	mutex_lock(&tide_figures_mutex);
	tide_times_add(sum, &tide_figures_gone_times);
	list_for_each_entry(pool, &tide_figures_pools, every)
		tide_times_add(sum, pool->times);
	mutex_unlock(&tide_figures_mutex);
}

/**
 * tide_figures_show_times() - how long calls have taken, as the histograms of lenders
 * @page: where to, one page
 *
 * Context: process.
 * Return: number of bytes written, or -ENOMEM.
 */
int tide_figures_show_times(char *page)
{
	struct tide_times *sum = kzalloc(sizeof(*sum), GFP_KERNEL);
	int len;

	if (!sum)
		return -ENOMEM;
	tide_figures_sum_times(sum);
	len = tide_histogram_show(&sum->get, "get", page, 0);
	len += tide_histogram_show(&sum->put, "put", page, len);
	kfree(sum);
	return len;
}
