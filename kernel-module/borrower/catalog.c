// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog: which pages of which file are where, in which version (Puma,
 * section 3.4.1). A file is known by superblock, inode number and generation;
 * catalog_pages.c has its pages. What the catalog does not hold is read from disk, so
 * losing an entry is always safe; keeping one too long never is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/random.h>
#include <linux/slab.h>

#include "base/stats.h"
#include "borrower/catalog.h"
#include "borrower/catalog_ages.h"
#include "borrower/session.h"
#include "pagecache/filesystem.h"
#include "pagecache/mapping.h"
#include "pagecache/sequential.h"

#define TIDE_RESERVE		512	/* descriptors ready for the put path */
#define TIDE_FORGOTTEN_MOST	1024	/* entries, in a small catalog */

static struct kmem_cache *tide_file_cache;
static atomic64_t tide_version = ATOMIC64_INIT(0);

static LIST_HEAD(tide_reserve);
static unsigned int tide_reserved;
static DEFINE_SPINLOCK(tide_reserve_lock);
static struct lock_class_key tide_file_lock_key;

/* Small files are evicted by the hundred, and whoever evicts them has the processor. */
struct workqueue_struct *tide_catalog_queue;

/**
 * tide_next_version() - a version that no page has had since the module loaded
 */
u64 tide_next_version(void)
{
	return atomic64_inc_return(&tide_version);
}

/* ------------------------------------------------------------------ */
/* the reserve: the put path allocates nothing (invariant 4)	       */
/* ------------------------------------------------------------------ */

static struct tide_file *tide_file_alloc(void)
{
	struct tide_file *file = kmem_cache_zalloc(tide_file_cache, GFP_KERNEL | __GFP_NOWARN);

	if (!file)
		return NULL;
	xa_init_flags(&file->pages, XA_FLAGS_LOCK_IRQ);
	lockdep_set_class(&file->pages.xa_lock, &tide_file_lock_key);
	file->outgoing = RB_ROOT;
	file->id = get_random_u64();	/* tells a lender nothing of the files */
	return file;
}

static void tide_reserve_fill(struct work_struct *work)
{
	while (READ_ONCE(tide_reserved) < TIDE_RESERVE) {
		struct tide_file *file = tide_file_alloc();

		if (!file)
			return;
		spin_lock_irq(&tide_reserve_lock);
		list_add(&file->reserve, &tide_reserve);
		tide_reserved++;
		spin_unlock_irq(&tide_reserve_lock);
	}
}

static DECLARE_WORK(tide_reserve_work, tide_reserve_fill);

static struct tide_file *tide_reserve_take(void)
{
	struct tide_file *file;
	unsigned long flags;
	bool low;

	spin_lock_irqsave(&tide_reserve_lock, flags);
	file = list_first_entry_or_null(&tide_reserve, struct tide_file, reserve);
	if (file) {
		list_del(&file->reserve);
		tide_reserved--;
	}
	low = tide_reserved < TIDE_RESERVE / 4 * 3;
	spin_unlock_irqrestore(&tide_reserve_lock, flags);
	if (low)
		queue_work(tide_catalog_queue, &tide_reserve_work);
	return file;
}

static void tide_reserve_return(struct tide_file *file)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_reserve_lock, flags);
	list_add(&file->reserve, &tide_reserve);
	tide_reserved++;
	spin_unlock_irqrestore(&tide_reserve_lock, flags);
}

int tide_catalog_init(void)
{
	/* The shrinker gives files back, so they count as available memory. */
	tide_file_cache = kmem_cache_create("tidepool_file", sizeof(struct tide_file), 0,
					    SLAB_RECLAIM_ACCOUNT, NULL);
	tide_catalog_queue = alloc_workqueue("tidepool_catalog",
					     WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 2);
	if (tide_file_cache && tide_catalog_queue && !tide_leaves_init() && !tide_table_init())
		tide_reserve_fill(NULL);
	if (tide_reserved)
		return 0;
	tide_catalog_exit();
	return -ENOMEM;
}

/* Every lender is gone, so no file has an entry and no buffer names one. */
void tide_catalog_exit(void)
{
	struct tide_file *file, *next;

	if (tide_catalog_queue)
		destroy_workqueue(tide_catalog_queue);	/* its work is done first */
	list_for_each_entry_safe(file, next, &tide_reserve, reserve)
		kmem_cache_free(tide_file_cache, file);
	rcu_barrier();		/* tide_file_free_rcu() is code of this module */
	tide_table_exit();
	tide_leaves_exit();
	kmem_cache_destroy(tide_file_cache);
}

/* ------------------------------------------------------------------ */
/* files							       */
/* ------------------------------------------------------------------ */

/**
 * tide_file_find_or_reserve() - the descriptor of an inode, made if need be
 * @inode: a regular file
 *
 * Context: any; allocates nothing.
 * Return: the descriptor with a reference taken, or NULL when the reserve is
 * empty.
 */
struct tide_file *tide_file_find_or_reserve(struct inode *inode)
{
	struct tide_file *file = tide_file_find(inode), *other;

	if (file)
		return file;
	file = tide_reserve_take();
	if (!file)
		return NULL;
	file->sb = inode->i_sb;
	file->volume = tide_volume(inode);
	file->ino = inode->i_ino;
	file->generation = inode->i_generation;
	file->dev = inode->i_sb->s_dev;
	refcount_set(&file->refs, 2);	/* the table's, the caller's */

	other = tide_table_insert(file, inode);
	if (other) {
		tide_reserve_return(file);
		return other;
	}
	return file;
}

static void tide_file_free_rcu(struct rcu_head *rcu)
{
	struct tide_file *file = container_of(rcu, struct tide_file, rcu);

	if (!xa_empty(&file->pages))
		tide_warn("file %llu freed with entries\n", file->id);
	xa_destroy(&file->pages);
	tide_sequential_free(file);
	kmem_cache_free(tide_file_cache, file);
}

static void tide_file_unref(struct tide_file *file)
{
	if (refcount_dec_and_test(&file->refs))
		call_rcu(&file->rcu, tide_file_free_rcu);
}

/* Is there nothing of a file to be known, neither at a lender nor here? */
static bool tide_file_idle(struct tide_file *file)
{
	return !READ_ONCE(file->mapping) && xa_empty(&file->pages) &&
	       RB_EMPTY_ROOT(&file->outgoing);
}

static void tide_file_retire(struct tide_file *file)
{
	unsigned long flags;
	bool idle;

	tide_file_lock(file, flags);
	idle = !file->dead && tide_file_idle(file);
	if (idle)
		smp_store_release(&file->dead, true);	/* pairs with tide_file_get() */
	tide_file_unlock(file, flags);
	if (!idle)
		return;
	tide_table_remove(file);
	tide_file_unref(file);
}

/**
 * tide_file_put() - drop a reference
 * @file: the descriptor
 *
 * A file that has become idle is forgotten. Whoever takes its last page, or unhooks
 * it, has a reference, so that this is not missed; whoever is about to put a page of
 * it meanwhile finds it dead.
 *
 * Context: any.
 */
void tide_file_put(struct tide_file *file)
{
	if (tide_file_idle(file))
		tide_file_retire(file);
	tide_file_unref(file);
}

/* Nothing is put, recorded or hooked from here on. Returns false if that was so before. */
static bool tide_file_end(struct tide_file *file)
{
	unsigned long flags;
	bool alive;

	tide_file_lock(file, flags);
	alive = !file->dead;
	tide_unhook_mapping(file);
	/* pairs with tide_file_get() */
	smp_store_release(&file->dead, true);
	tide_file_unlock(file, flags);
	return alive;
}

/**
 * tide_file_kill() - forget a file: its inode is deleted or its mount is gone
 * @file: the descriptor; the caller has a reference
 *
 * Until its last entry has gone tide_catalog_for_each() sees it.
 *
 * Context: process.
 */
void tide_file_kill(struct tide_file *file)
{
	bool known = tide_file_end(file);

	tide_file_drop(file, 0, ULONG_MAX);
	if (!known)
		return;
	tide_table_remove(file);
	tide_file_unref(file);
}

/**
 * tide_file_empty() - is no page of the file in the pool?
 * @file: the descriptor
 */
bool tide_file_empty(struct tide_file *file)
{
	unsigned long flags;
	bool empty;

	tide_file_lock(file, flags);
	empty = xa_empty(&file->pages) && RB_EMPTY_ROOT(&file->outgoing);
	tide_file_unlock(file, flags);
	return empty;
}

/**
 * tide_catalog_for_each() - call a function for every file
 * @fn: may sleep, may kill the file
 * @arg: its second argument
 *
 * Context: process.
 */
void tide_catalog_for_each(void (*fn)(struct tide_file *file, void *arg), void *arg)
{
	tide_table_for_each(NULL, fn, arg);
}

/**
 * tide_catalog_evicted() - a lender says that it dropped a page
 * @slot: the lender's
 * @id: the file's name on the wire
 * @index: page index
 * @version: of the page it dropped
 *
 * What it says of pages that another lender has is nothing.
 *
 * Context: process.
 */
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version)
{
	struct tide_file *file = tide_file_find_id(id);

	if (!file)
		return;
	tide_file_evicted(file, index, version, slot);
	tide_file_put(file);
}

/* ------------------------------------------------------------------ */
/* purges							       */
/* ------------------------------------------------------------------ */

static void tide_catalog_count(s64 *believed, s64 *forgotten)
{
	struct tide_lender *lender;
	int slot;

	*believed = 0;
	*forgotten = 0;
	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (!lender)
			continue;
		*believed += atomic64_read(&lender->catalog_pages);
		*forgotten += tide_ages_forgotten(&lender->ages);
	}
	rcu_read_unlock();
}

static void tide_purge_file(struct tide_file *file, void *before)
{
	tide_file_purge(file, before);
}

/* The lender is to have no page left. */
static void tide_purge_check(int slot)
{
	struct tide_lender *lender;
	s64 left = 0;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender)
		left = atomic64_read(&lender->catalog_pages) + tide_ages_forgotten(&lender->ages);
	if (left)
		tide_warn("lenders/%s: %lld pages of a session that is over\n",
			  lender->name, left);
	rcu_read_unlock();
}

/**
 * tide_catalog_purge_lender() - forget all pages that a lender has
 * @slot: the lender's slot; no put of its is under way any more
 *
 * Context: process.
 */
void tide_catalog_purge_lender(int slot)
{
	u64 before[TIDE_MAX_LENDERS] = { };

	before[slot] = U64_MAX;
	tide_catalog_for_each(tide_purge_file, before);
	tide_purge_check(slot);
}

/* Clears the entries that are forgotten. */
static void tide_catalog_sweep(void)
{
	u64 before[TIDE_MAX_LENDERS] = { };
	struct tide_lender *lender;
	int slot;

	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (lender)
			before[slot] = READ_ONCE(lender->ages.oldest);
	}
	rcu_read_unlock();
	tide_catalog_for_each(tide_purge_file, before);
}

/**
 * tide_catalog_sweep_if_due() - clear forgotten entries when there are many
 *
 * They may be an eighth of the others, so that clearing one costs a look at nine.
 *
 * Context: process.
 */
void tide_catalog_sweep_if_due(void)
{
	s64 believed, forgotten;

	tide_catalog_count(&believed, &forgotten);
	if (forgotten > TIDE_FORGOTTEN_MOST && forgotten > believed / 8)
		tide_catalog_sweep();
}

/**
 * tide_catalog_granted() - forget what a lender cannot have any more
 * @lender: its new grant is set
 *
 * It says what it drops, but of so many pages some notices may be lost.
 *
 * Context: process.
 */
void tide_catalog_granted(struct tide_lender *lender)
{
	tide_ages_granted(lender);
	tide_catalog_sweep_if_due();
}

static void tide_purge_super(struct tide_file *file, void *unused)
{
	tide_file_kill(file);
}

/**
 * tide_catalog_purge_super() - forget all files of a file system
 * @sb: being unmounted
 *
 * Context: process.
 */
void tide_catalog_purge_super(struct super_block *sb)
{
	tide_table_for_each(sb, tide_purge_super, NULL);
}

/* ------------------------------------------------------------------ */
/* what the shrinker takes					       */
/* ------------------------------------------------------------------ */

/**
 * tide_catalog_shrink() - give memory back, that of cold files first
 * @objects: how many entries and files
 * @pages: set to how many of these were entries
 *
 * A file that was put to or read from the pool since it was last looked at is
 * spared once. One whose last entry goes counts as given back, too; while its inode
 * is in memory it goes only with that.
 *
 * Context: any in which memory may be reclaimed; does not wait.
 * Return: how many were given back.
 */
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages)
{
	struct tide_file *file;
	unsigned long freed = 0;

	*pages = 0;
	while (freed < objects && (file = tide_table_cold())) {
		unsigned int n = tide_file_shrink(file, min_t(unsigned long, objects - freed,
							      TIDE_DROP_CHUNK));

		*pages += n;
		freed += n + xa_empty(&file->pages);
		tide_file_put(file);
	}
	return freed;
}

/**
 * tide_catalog_pages() - how many entries does the catalog have?
 */
u64 tide_catalog_pages(void)
{
	s64 believed, forgotten;

	tide_catalog_count(&believed, &forgotten);
	return believed + forgotten;
}
