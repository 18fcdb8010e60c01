// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog: which pages of which file are where, in which version (Puma,
 * section 3.4.1). A file is known by superblock, inode number and generation;
 * leaves.c has its pages. What the catalog does not hold is read from disk, so
 * losing an entry is always safe; keeping one too long never is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "catalog.h"

#define TIDE_FILE_BITS		12
#define TIDE_RESERVE		512	/* descriptors ready for the put path */
#define TIDE_FORGOTTEN_MOST	1024	/* entries of a lender, in a small catalog */
#define TIDE_HAND_BUCKETS	64	/* looked at with interrupts off */

static struct hlist_head tide_files[1 << TIDE_FILE_BITS];
static struct hlist_head tide_files_by_id[1 << TIDE_FILE_BITS];
static DEFINE_SPINLOCK(tide_files_lock);	/* writers of both tables */
unsigned int tide_file_count;	/* in both */
static atomic64_t tide_version = ATOMIC64_INIT(0);

static LIST_HEAD(tide_reserve);
static unsigned int tide_reserved;
static DEFINE_SPINLOCK(tide_reserve_lock);
static struct lock_class_key tide_file_lock_key;

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
	struct tide_file *file = kzalloc(sizeof(*file), GFP_KERNEL | __GFP_NOWARN);

	if (!file)
		return NULL;
	xa_init_flags(&file->pages, XA_FLAGS_LOCK_IRQ);
	lockdep_set_class(&file->pages.xa_lock, &tide_file_lock_key);
	file->outgoing = RB_ROOT;
	file->id = get_random_u64();
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

/* Small files are evicted by the hundred, and whoever evicts them has the processor. */
static struct workqueue_struct *tide_reserve_queue;
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
		queue_work(tide_reserve_queue, &tide_reserve_work);
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
	int err = tide_leaves_init();

	if (err)
		return err;
	tide_reserve_queue = alloc_workqueue("tidepool_reserve",
					     WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 1);
	if (tide_reserve_queue) {
		tide_reserve_fill(NULL);
		if (tide_reserved)
			return 0;
		destroy_workqueue(tide_reserve_queue);
	}
	tide_leaves_exit();
	return -ENOMEM;
}

/* Every lender is gone, so no file has an entry and no buffer names one. */
void tide_catalog_exit(void)
{
	struct tide_file *file, *next;

	destroy_workqueue(tide_reserve_queue);	/* its work is done first */
	list_for_each_entry_safe(file, next, &tide_reserve, reserve)
		kfree(file);
	rcu_barrier();		/* tide_file_free_rcu() is code of this module */
	tide_leaves_exit();
}

/* ------------------------------------------------------------------ */
/* files							       */
/* ------------------------------------------------------------------ */

static struct hlist_head *tide_bucket(const struct super_block *sb, u64 volume,
				      unsigned long ino)
{
	return &tide_files[hash_64((unsigned long)sb ^ (ino + volume) * GOLDEN_RATIO_64,
				   TIDE_FILE_BITS)];
}

static struct hlist_head *tide_bucket_by_id(u64 id)
{
	return &tide_files_by_id[hash_64(id, TIDE_FILE_BITS)];
}

/* File numbers are drawn: they tell a lender nothing of the files. */
static bool tide_id_known(u64 id)
{
	struct tide_file *file;

	hlist_for_each_entry(file, tide_bucket_by_id(id), by_id)
		if (file->id == id)
			return true;
	return false;
}

/* An ioctl may change the generation of an inode while it is in memory. */
static bool tide_file_is(const struct tide_file *file, const struct inode *inode,
			 u64 volume)
{
	return file->ino == inode->i_ino && file->sb == inode->i_sb &&
	       file->volume == volume &&
	       (file->generation == inode->i_generation ||
		READ_ONCE(file->mapping) == inode->i_mapping);
}

/* A dead one has let go of the inode's mapping: pairs with tide_file_end(). */
static bool tide_file_get(struct tide_file *file)
{
	return !smp_load_acquire(&file->dead) && refcount_inc_not_zero(&file->refs);
}

/**
 * tide_file_find() - the descriptor of an inode
 * @inode: a regular file
 *
 * Context: any.
 * Return: the descriptor with a reference taken, or NULL.
 */
struct tide_file *tide_file_find(struct inode *inode)
{
	u64 volume = tide_volume(inode);
	struct tide_file *file;

	rcu_read_lock();
	hlist_for_each_entry_rcu(file, tide_bucket(inode->i_sb, volume, inode->i_ino),
				 hash) {
		if (tide_file_is(file, inode, volume) && tide_file_get(file)) {
			rcu_read_unlock();
			return file;
		}
	}
	rcu_read_unlock();
	return NULL;
}

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
	unsigned long flags;

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
	refcount_set(&file->refs, 2);	/* the tables', the caller's */

	spin_lock_irqsave(&tide_files_lock, flags);
	other = tide_file_find(inode);
	if (!other) {
		while (tide_id_known(file->id))
			file->id = get_random_u64();
		tide_file_count++;
		hlist_add_head_rcu(&file->by_id, tide_bucket_by_id(file->id));
		hlist_add_head_rcu(&file->hash,
				   tide_bucket(file->sb, file->volume, file->ino));
	}
	spin_unlock_irqrestore(&tide_files_lock, flags);
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
	kfree(file);
}

/**
 * tide_file_put() - drop a reference
 * @file: the descriptor
 *
 * Context: any.
 */
void tide_file_put(struct tide_file *file)
{
	if (refcount_dec_and_test(&file->refs))
		call_rcu(&file->rcu, tide_file_free_rcu);
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
	unsigned long flags;

	tide_file_drop(file, 0, ULONG_MAX);
	if (!known)
		return;
	spin_lock_irqsave(&tide_files_lock, flags);
	hlist_del_rcu(&file->hash);
	hlist_del_rcu(&file->by_id);
	tide_file_count--;
	spin_unlock_irqrestore(&tide_files_lock, flags);
	tide_file_put(file);
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

static struct tide_file *tide_bucket_next(struct hlist_head *bucket, unsigned int pass)
{
	struct tide_file *file;

	spin_lock_irq(&tide_files_lock);
	hlist_for_each_entry(file, bucket, hash) {
		if (file->pass != pass && refcount_inc_not_zero(&file->refs)) {
			file->pass = pass;
			spin_unlock_irq(&tide_files_lock);
			return file;
		}
	}
	spin_unlock_irq(&tide_files_lock);
	return NULL;
}

/**
 * tide_catalog_for_each() - call a function for every file
 * @fn: may sleep, may kill the file
 * @arg: its second argument
 *
 * Every file that is known throughout is visited, whatever comes and goes.
 *
 * Context: process.
 */
void tide_catalog_for_each(void (*fn)(struct tide_file *file, void *arg), void *arg)
{
	static DEFINE_MUTEX(mutex);
	static unsigned int pass;
	struct tide_file *file;
	unsigned int i;

	mutex_lock(&mutex);
	pass++;
	for (i = 0; i < ARRAY_SIZE(tide_files); i++) {
		while ((file = tide_bucket_next(&tide_files[i], pass))) {
			fn(file, arg);
			tide_file_put(file);
		}
		cond_resched();
	}
	mutex_unlock(&mutex);
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
	struct tide_file *file;

	rcu_read_lock();
	hlist_for_each_entry_rcu(file, tide_bucket_by_id(id), by_id) {
		if (file->id == id) {
			tide_file_evicted(file, index, version, slot);
			break;
		}
	}
	rcu_read_unlock();
}

/* ------------------------------------------------------------------ */
/* purges							       */
/* ------------------------------------------------------------------ */

static s64 tide_lender_entries(struct tide_lender *lender)
{
	return atomic64_read(&lender->catalog_pages) + tide_ages_forgotten(lender);
}

/* Forgets a file of which nothing is left, neither here nor in memory. */
static void tide_file_tidy(struct tide_file *file)
{
	if (!READ_ONCE(file->mapping) && tide_file_empty(file))
		tide_file_kill(file);
}

static void tide_purge_file(struct tide_file *file, void *before)
{
	tide_file_purge(file, before);
	tide_file_tidy(file);
}

/* The lender is to have no page left. */
static void tide_purge_check(int slot)
{
	struct tide_lender *lender;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender && tide_lender_entries(lender))
		tide_warn("lenders/%s: %lld pages of a session that is over\n", lender->name,
			  tide_lender_entries(lender));
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
 * @slot: of a lender that is about to have one more
 *
 * They may be an eighth of all entries, so that clearing one costs a look at eight.
 *
 * Context: process.
 */
void tide_catalog_sweep_if_due(int slot)
{
	struct tide_lender *lender;
	s64 forgotten;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	forgotten = lender ? tide_ages_forgotten(lender) : 0;
	rcu_read_unlock();
	if (forgotten > TIDE_FORGOTTEN_MOST && forgotten > tide_catalog_pages() / 8)
		tide_catalog_sweep();
}

static void tide_purge_super(struct tide_file *file, void *arg)
{
	if (file->sb == arg)
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
	tide_catalog_for_each(tide_purge_super, sb);
}

/* ------------------------------------------------------------------ */
/* what the shrinker takes					       */
/* ------------------------------------------------------------------ */

/* A bucket's file that has pages and was not used since it was last asked. */
static struct tide_file *tide_bucket_cold(struct hlist_head *bucket)
{
	struct tide_file *file;

	hlist_for_each_entry(file, bucket, hash) {
		if (xa_empty(&file->pages))
			continue;
		if (READ_ONCE(file->used))
			WRITE_ONCE(file->used, false);
		else if (refcount_inc_not_zero(&file->refs))
			return file;
	}
	return NULL;
}

/* Goes on where it stopped, twice round at most, as the hand of a clock. */
static struct tide_file *tide_catalog_cold(void)
{
	static unsigned int hand;	/* under tide_files_lock */
	struct tide_file *file = NULL;
	unsigned int n = 0;
	unsigned long flags;

	while (!file && n < 2 * ARRAY_SIZE(tide_files)) {
		spin_lock_irqsave(&tide_files_lock, flags);
		do {
			file = tide_bucket_cold(&tide_files[hand]);
			if (!file)
				hand = (hand + 1) % ARRAY_SIZE(tide_files);
		} while (!file && ++n % TIDE_HAND_BUCKETS);
		spin_unlock_irqrestore(&tide_files_lock, flags);
	}
	return file;
}

/**
 * tide_catalog_shrink() - give entries back, those of cold files first
 * @pages: how many
 *
 * A file that was put to or read from the pool since it was last looked at is
 * spared once.
 *
 * Context: any in which memory may be reclaimed; does not wait.
 * Return: how many were given back.
 */
unsigned long tide_catalog_shrink(unsigned long pages)
{
	struct tide_file *file;
	unsigned long freed = 0;

	while (freed < pages && (file = tide_catalog_cold())) {
		freed += tide_file_shrink(file, min_t(unsigned long, pages - freed,
						      TIDE_DROP_CHUNK));
		tide_file_tidy(file);
		tide_file_put(file);
	}
	return freed;
}

/**
 * tide_catalog_pages() - how many entries does the catalog have?
 */
u64 tide_catalog_pages(void)
{
	struct tide_lender *lender;
	s64 pages = 0;
	int slot;

	rcu_read_lock();
	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (lender)
			pages += tide_lender_entries(lender);
	}
	rcu_read_unlock();
	return max_t(s64, pages, 0);
}
