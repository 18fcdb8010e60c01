// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools of values. One with a name is there for all whom its mode lets in, until its name
 * is taken away or the module goes; one without goes with the last who has it open.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/compiler.h>
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/user_namespace.h>

#include "appmem/figures.h"
#include "appmem/front.h"
#include "appmem/pool.h"
#include "appmem/spill.h"
#include "appmem/times.h"
#include "appmem/value.h"
#include "borrower/catalog.h"
#include "borrower/object.h"

/* What an empty pool counts for. */
#define TIDE_APP_POOL_BYTES	SZ_4K
#define TIDE_APP_MODES		0666

static DEFINE_MUTEX(tide_app_mutex);	/* the list; nothing is waited for with it held */
static LIST_HEAD(tide_app_pools);	/* with a name */
static DEFINE_MUTEX(tide_app_kept_mutex);	/* one at a time gives a kept pool a name */

/* ------------------------------------------------------------------ */
/* coming and going						       */
/* ------------------------------------------------------------------ */

/* What it counts for without a value. */
static struct tide_cost tide_app_pool_cost(const struct tide_app_pool *pool)
{
	return tide_cost(TIDE_APP_POOL_BYTES +
			 (pool->spill ? tide_spill_bytes(pool->spill) : 0), 0);
}

/* Undoes tide_app_pool_fill(). */
static void tide_app_pool_empty(struct tide_app_pool *pool)
{
	tide_account_uncharge(&pool->account, tide_app_pool_cost(pool));
	tide_account_close(&pool->account);
	tide_spill_close(pool->spill);
}

static void tide_app_pool_free(struct tide_app_pool *pool)
{
	mutex_destroy(&pool->lock);
	mutex_destroy(&pool->writing);
	kfree(pool->times);
	kfree(pool);
}

static void tide_app_pool_release(struct kref *kref)
{
	struct tide_app_pool *pool = container_of(kref, struct tide_app_pool, kref);

	tide_object_destroy(pool->object);	/* and all pages with it */
	pool->object = NULL;
	tide_values_end(pool);
	tide_front_end(&pool->front);
	tide_figures_remove(pool);
	tide_app_pool_empty(pool);
	tide_app_pool_free(pool);
}

/**
 * tide_app_pool_close() - undo tide_app_pool_open()
 * @pool: the pool
 *
 * Its end may take long, so nobody has to wait for it: no mutex is held. While others can
 * find it by its name, that has a reference.
 *
 * Context: process.
 */
void tide_app_pool_close(struct tide_app_pool *pool)
{
	kref_put(&pool->kref, tide_app_pool_release);
}

static int tide_app_pool_open_spill(struct tide_app_pool *pool, const struct tidepool_open *how)
{
	struct tide_spill *spill;

	if (!(how->flags & TIDEPOOL_KEPT))
		return 0;
	spill = tide_spill_open(how->spill);
	if (IS_ERR(spill))
		return PTR_ERR(spill);
	pool->spill = spill;
	return 0;
}

static int tide_app_pool_open_account(struct tide_app_pool *pool, u64 quota)
{
	int err = tide_account_open(&pool->account, pool->owner, quota);

	if (err)
		return err;
	err = tide_account_charge(&pool->account, tide_app_pool_cost(pool), 0);
	if (err)
		tide_account_close(&pool->account);
	return err;
}

static int tide_app_pool_fill(struct tide_app_pool *pool, const struct tidepool_open *how)
{
	int err = tide_app_pool_open_spill(pool, how);

	if (err)
		return err;
	err = tide_app_pool_open_account(pool, how->quota ?: U64_MAX);
	if (err) {
		tide_spill_close(pool->spill);
		return err;
	}
	pool->object = tide_object_create(0);
	if (pool->object) {
		pool->object->once = true;
		return 0;
	}
	tide_app_pool_empty(pool);
	return -ENOMEM;
}

static struct tide_app_pool *tide_app_pool_create(const struct tidepool_open *how,
						  unsigned int access)
{
	struct tide_app_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pool)
		return ERR_PTR(-ENOMEM);
	pool->times = kzalloc(sizeof(*pool->times), GFP_KERNEL_ACCOUNT);
	if (!pool->times) {
		kfree(pool);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&pool->kref);
	mutex_init(&pool->writing);
	mutex_init(&pool->lock);
	INIT_LIST_HEAD(&pool->list);
	INIT_LIST_HEAD(&pool->shared);
	xa_init(&pool->front.pages);
	pool->values = RB_ROOT;
	pool->next_index = 1;	/* 0 is where an empty value is */
	strscpy(pool->name, how->name, sizeof(pool->name));
	pool->owner = current_fsuid();
	pool->group = current_fsgid();
	pool->mode = how->mode;
	pool->held = access;
	err = tide_app_pool_fill(pool, how);
	if (!err) {
		tide_figures_add(pool);
		return pool;
	}
	tide_app_pool_free(pool);
	return ERR_PTR(err);
}

static bool tide_app_pool_admits(const struct tide_app_pool *pool, unsigned int access)
{
	unsigned int mode = pool->mode;

	if (uid_eq(current_fsuid(), pool->owner))
		mode >>= 6;
	else if (in_group_p(pool->group))
		mode >>= 3;
	return !(access & ~mode) || capable(CAP_DAC_OVERRIDE);
}

/*
 * Is it what the caller would have made? Another user may have taken the name before, to
 * read what is put or to have his own read. So nobody may be let in there whom the caller
 * would not let in, its owner included: who has made a pool has it open, whatever its mode
 * says of him. Only root's pools are taken as they are.
 */
static bool tide_app_pool_is_meant(const struct tide_app_pool *pool,
				   const struct tidepool_open *how)
{
	unsigned int others = how->mode & 07, group = others;

	if (uid_eq(pool->owner, current_fsuid()) || uid_eq(pool->owner, GLOBAL_ROOT_UID))
		return true;
	if (gid_eq(pool->group, current_fsgid()))
		group |= how->mode >> 3 & 07;
	return !((pool->held | pool->mode >> 6 | pool->mode >> 3) & 07 & ~group) &&
	       !(pool->mode & 07 & ~others) &&
	       (!how->quota || how->quota == pool->account.quota);
}

static struct tide_app_pool *tide_app_pool_find(const char *name)
{
	struct tide_app_pool *pool;

	list_for_each_entry(pool, &tide_app_pools, list)
		if (!strcmp(pool->name, name))
			return pool;
	return NULL;
}

/* The pool of that name, or NULL; under the mutex. */
static struct tide_app_pool *tide_app_pool_join(const struct tidepool_open *how,
						unsigned int access)
{
	struct tide_app_pool *pool = tide_app_pool_find(how->name);

	if (!pool)
		return NULL;
	if (!tide_app_pool_admits(pool, access))
		return ERR_PTR(-EACCES);
	if (!pool->spill != !(how->flags & TIDEPOOL_KEPT) || !tide_app_pool_is_meant(pool, how))
		return ERR_PTR(-EEXIST);
	kref_get(&pool->kref);
	return pool;
}

/* Joins the pool of that name, or names a new one, which stays when who made it has gone. */
static struct tide_app_pool *tide_app_pool_settle(const struct tidepool_open *how,
						  unsigned int access,
						  struct tide_app_pool *fresh)
{
	struct tide_app_pool *pool;

	mutex_lock(&tide_app_mutex);
	pool = tide_app_pool_join(how, access);
	if (!pool && fresh) {
		pool = fresh;
		kref_get(&pool->kref);
		list_add_tail(&pool->list, &tide_app_pools);
	}
	mutex_unlock(&tide_app_mutex);
	return pool;
}

static struct tide_app_pool *tide_app_pool_open_either(const struct tidepool_open *how,
						       unsigned int access)
{
	struct tide_app_pool *pool = tide_app_pool_settle(how, access, NULL), *fresh;

	if (pool)
		return pool;
	fresh = tide_app_pool_create(how, access);	/* nobody waits for memory with the mutex */
	if (IS_ERR(fresh))
		return fresh;
	pool = tide_app_pool_settle(how, access, fresh);
	if (pool != fresh)
		tide_app_pool_close(fresh);
	return pool;
}

/* Of those who make one kept pool at the same time, all but one join: there is one file. */
static struct tide_app_pool *tide_app_pool_open_named(const struct tidepool_open *how,
						      unsigned int access)
{
	struct tide_app_pool *pool;

	if (!(how->flags & TIDEPOOL_KEPT) || how->spill < 0)
		return tide_app_pool_open_either(how, access);
	pool = tide_app_pool_settle(how, access, NULL);
	if (pool)
		return pool;
	if (tide_spill_await(how->spill))
		return ERR_PTR(-EINTR);
	if (mutex_lock_killable(&tide_app_kept_mutex))
		return ERR_PTR(-EINTR);
	pool = tide_app_pool_open_either(how, access);
	mutex_unlock(&tide_app_kept_mutex);
	return pool;
}

/* Of what a line of the list may have. */
static bool tide_app_name_is_valid(const char *name)
{
	size_t size = strnlen(name, TIDEPOOL_NAME_MAX), i;

	for (i = 0; i < size; i++)
		if (!isascii(name[i]) || !isprint(name[i]))
			return false;
	return size < TIDEPOOL_NAME_MAX;
}

static bool tide_app_how_is_valid(const struct tidepool_open *how)
{
	return !(how->flags & ~TIDEPOOL_KEPT) && (how->flags || !how->spill) &&
	       !(how->mode & ~TIDE_APP_MODES) && tide_app_name_is_valid(how->name);
}

/**
 * tide_app_pool_open() - a pool by its name, or one of one's own
 * @how: what a program says
 * @access: MAY_READ, MAY_WRITE or both
 *
 * Context: process.
 * Return: the pool, for tide_app_pool_close(), or an error: -EPROTONOSUPPORT for another
 * version of the interface, -EINVAL, -EACCES, -EEXIST when it is another user's and not
 * what is asked for, or is kept and was not asked to be or the other way round, -EDQUOT,
 * -ENOMEM, -EINTR, or see tide_spill_open().
 */
struct tide_app_pool *tide_app_pool_open(const struct tidepool_open *how, unsigned int access)
{
	if (how->api != TIDEPOOL_API)
		return ERR_PTR(-EPROTONOSUPPORT);
	if (!tide_app_how_is_valid(how))
		return ERR_PTR(-EINVAL);
	return *how->name ? tide_app_pool_open_named(how, access) :
		tide_app_pool_create(how, access);
}

/**
 * tide_app_pool_unlink() - take a pool's name away
 * @pool: that the caller has open
 *
 * Who has it open keeps it.
 *
 * Context: process.
 * Return: 0, -ENOENT when it has none, or -EPERM when it is another user's.
 */
int tide_app_pool_unlink(struct tide_app_pool *pool)
{
	int err = 0;

	mutex_lock(&tide_app_mutex);
	if (list_empty(&pool->list))
		err = -ENOENT;
	else if (!uid_eq(current_fsuid(), pool->owner) && !capable(CAP_FOWNER))
		err = -EPERM;
	else
		list_del_init(&pool->list);
	mutex_unlock(&tide_app_mutex);
	if (!err)
		tide_app_pool_close(pool);	/* the name's reference; the caller has another */
	return err;
}

/**
 * tide_app_pools_exit() - the end of all pools with a name
 *
 * Context: process; nobody has one open.
 */
void tide_app_pools_exit(void)
{
	struct tide_app_pool *pool, *next;

	mutex_lock(&tide_app_mutex);
	list_for_each_entry_safe(pool, next, &tide_app_pools, list) {
		list_del_init(&pool->list);
		kref_put(&pool->kref, tide_app_pool_release);
	}
	mutex_unlock(&tide_app_mutex);
}

/* ------------------------------------------------------------------ */
/* what is said of them						       */
/* ------------------------------------------------------------------ */

/* What is not counted under the pool's lock. */
static void tide_app_pool_say(struct tide_app_pool *pool, struct tidepool_stats *stats)
{
	tide_account_say(&pool->account, &stats->quota, &stats->bytes);
	stats->spilled = pool->spill ? tide_spill_reads(pool->spill) : 0;
	stats->front_bytes = tide_front_bytes_of(&pool->front);
}

/**
 * tide_app_pool_stats() - what a pool holds, and what was counted
 * @pool: the pool
 * @stats: to be filled
 *
 * Context: process.
 */
void tide_app_pool_stats(struct tide_app_pool *pool, struct tidepool_stats *stats)
{
	mutex_lock(&pool->lock);
	*stats = pool->stats;
	mutex_unlock(&pool->lock);
	tide_app_pool_say(pool, stats);
}

static void tide_app_pool_show(struct seq_file *seq, struct tide_app_pool *pool)
{
	struct tidepool_stats stats = data_race(pool->stats);	/* its lock may be held for long */

	tide_app_pool_say(pool, &stats);
	seq_escape(seq, pool->name, " \t\n\\");
	seq_printf(seq, " %u %04o %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu ",
		   from_kuid_munged(seq_user_ns(seq), pool->owner), pool->mode, stats.quota,
		   stats.bytes, stats.values, stats.value_bytes, stats.hits, stats.misses,
		   stats.lost, stats.puts, stats.local, stats.front_bytes, stats.spilled);
	tide_times_list(seq, &pool->times->get);
	seq_putc(seq, ' ');
	tide_times_list(seq, &pool->times->put);
	seq_putc(seq, '\n');
}

/**
 * tide_app_pools_show() - a line for each pool with a name that the reader may read
 * @seq: of the device
 *
 * Context: process.
 */
void tide_app_pools_show(struct seq_file *seq)
{
	struct tide_app_pool *pool;

	seq_puts(seq, "name owner mode quota bytes values value_bytes hits misses lost puts local front_bytes spilled get_us put_us\n");
	mutex_lock(&tide_app_mutex);
	list_for_each_entry(pool, &tide_app_pools, list)
		if (tide_app_pool_admits(pool, 04))
			tide_app_pool_show(seq, pool);
	mutex_unlock(&tide_app_mutex);
}
