// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog: which pages of which file are where, in which version (Puma,
 * section 3.4.1). A file is known by superblock, inode number and generation.
 * A page costs an entry of 8 bytes: version and slot of the lender. Sixteen
 * entries make a leaf, and the file's xarray holds its leaves: with the tree
 * that is 2.15 MiB to a GiB of pages. What the catalog does not hold is read
 * from disk, so losing an entry is always safe; keeping one too long never is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "tidepool.h"

#define TIDE_FILE_BITS		12
#define TIDE_RESERVE		256	/* descriptors ready for the put path */
#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */
#define TIDE_SLOT_BITS		3
#define TIDE_LEAF_BITS		4
#define TIDE_LEAF_ENTRIES	16
#define TIDE_HAND_BUCKETS	64	/* looked at with interrupts off */

/* The entries of pages that lie side by side; 0 where there is none. */
struct tide_leaf {
	u64 entry[TIDE_LEAF_ENTRIES];
};

static struct hlist_head tide_files[1 << TIDE_FILE_BITS];
static struct hlist_head tide_files_by_id[1 << TIDE_FILE_BITS];
static DEFINE_SPINLOCK(tide_files_lock);	/* writers of both tables */
static unsigned int tide_file_count;
static atomic64_t tide_version = ATOMIC64_INIT(0);

static LIST_HEAD(tide_reserve);
static unsigned int tide_reserved;
static DEFINE_SPINLOCK(tide_reserve_lock);
static struct lock_class_key tide_file_lock_key;
static struct kmem_cache *tide_leaf_cache;

/* ------------------------------------------------------------------ */
/* entries and leaves; the file is locked			       */
/* ------------------------------------------------------------------ */

static_assert(TIDE_LEAF_ENTRIES == 1 << TIDE_LEAF_BITS);

static u64 tide_entry(u64 version, int slot)
{
	return version << TIDE_SLOT_BITS | slot;
}

static u64 tide_entry_version(u64 entry)
{
	return entry >> TIDE_SLOT_BITS;
}

static int tide_entry_slot(u64 entry)
{
	return entry & (TIDE_MAX_LENDERS - 1);
}

static u64 *tide_leaf_entry(struct tide_leaf *leaf, pgoff_t index)
{
	return &leaf->entry[index & (TIDE_LEAF_ENTRIES - 1)];
}

/* The leaf at the state's index, made if need be; NULL: no memory. */
static struct tide_leaf *tide_leaf_make(struct xa_state *xas)
{
	struct tide_leaf *leaf = xas_load(xas);

	if (leaf)
		return leaf;
	leaf = kmem_cache_zalloc(tide_leaf_cache, GFP_NOWAIT | __GFP_NOWARN);
	if (!leaf)
		return NULL;
	xas_store(xas, leaf);
	if (!xas_error(xas))
		return leaf;
	kmem_cache_free(tide_leaf_cache, leaf);
	return NULL;
}

/* Entries of a leaf were cleared: it goes when it was the last. */
static void tide_leaf_trim(struct xa_state *xas, struct tide_leaf *leaf)
{
	if (memchr_inv(leaf, 0, sizeof(*leaf)))
		return;
	xas_store(xas, NULL);
	kmem_cache_free(tide_leaf_cache, leaf);
}

static void tide_slot_count(int slot, long n)
{
	struct tide_lender *lender;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (lender)
		atomic64_add(n, &lender->catalog_pages);
	rcu_read_unlock();
}

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
	low = tide_reserved < TIDE_RESERVE / 2;
	spin_unlock_irqrestore(&tide_reserve_lock, flags);
	if (low)
		schedule_work(&tide_reserve_work);
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
	/* The shrinker gives leaves back, so they count as available memory. */
	tide_leaf_cache = kmem_cache_create("tidepool_leaf", sizeof(struct tide_leaf), 0,
					    SLAB_RECLAIM_ACCOUNT, NULL);
	if (!tide_leaf_cache)
		return -ENOMEM;
	tide_reserve_fill(NULL);
	if (tide_reserved)
		return 0;
	kmem_cache_destroy(tide_leaf_cache);
	return -ENOMEM;
}

/* Every lender is gone, so no file has an entry and no buffer names one. */
void tide_catalog_exit(void)
{
	struct tide_file *file, *next;

	cancel_work_sync(&tide_reserve_work);
	list_for_each_entry_safe(file, next, &tide_reserve, reserve)
		kfree(file);
	rcu_barrier();		/* tide_file_free_rcu() is code of this module */
	kmem_cache_destroy(tide_leaf_cache);
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
		if (tide_file_is(file, inode, volume) && refcount_inc_not_zero(&file->refs)) {
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

/**
 * tide_file_kill() - forget a file: its inode is deleted or its mount is gone
 * @file: the descriptor; the caller has a reference
 *
 * Context: process.
 */
void tide_file_kill(struct tide_file *file)
{
	unsigned long flags;
	bool known;

	spin_lock_irqsave(&tide_files_lock, flags);
	known = !file->dead;
	file->dead = true;
	if (known) {
		hlist_del_rcu(&file->hash);
		hlist_del_rcu(&file->by_id);
		tide_file_count--;
	}
	spin_unlock_irqrestore(&tide_files_lock, flags);

	tide_file_lock(file, flags);
	tide_unhook_mapping(file);
	tide_file_unlock(file, flags);
	tide_file_drop(file, 0, ULONG_MAX);
	if (known)
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

unsigned int tide_catalog_files(void)
{
	return READ_ONCE(tide_file_count);
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

/* ------------------------------------------------------------------ */
/* pages							       */
/* ------------------------------------------------------------------ */

/* A run of dropped pages of one lender, told to it as one range. */
struct tide_run {
	int slot;
	pgoff_t first, last;
	long count;
};

static void tide_run_end(struct tide_file *file, struct tide_run *run)
{
	if (!run->count)
		return;
	tide_slot_count(run->slot, -run->count);
	tide_forget(run->slot, file->id, run->first, run->last);
	run->count = 0;
}

static void tide_run_add(struct tide_file *file, struct tide_run *run,
			 int slot, pgoff_t index)
{
	if (run->count && (run->slot != slot || run->last + 1 != index))
		tide_run_end(file, run);
	if (!run->count) {
		run->slot = slot;
		run->first = index;
	}
	run->last = index;
	run->count++;
}

/* Clears the entries of a range in the leaf at the state's index. */
static unsigned int tide_leaf_drop(struct tide_file *file, struct tide_run *run,
				   struct xa_state *xas, struct tide_leaf *leaf,
				   pgoff_t first, pgoff_t last)
{
	pgoff_t base = xas->xa_index << TIDE_LEAF_BITS;
	unsigned int i, n = 0;

	for (i = 0; i < TIDE_LEAF_ENTRIES; i++) {
		if (!leaf->entry[i] || base + i < first || base + i > last)
			continue;
		tide_run_add(file, run, tide_entry_slot(leaf->entry[i]), base + i);
		leaf->entry[i] = 0;
		n++;
	}
	tide_leaf_trim(xas, leaf);
	return n;
}

/*
 * Drops the entries of a range, but not many more than @limit; @n is how many
 * it were. Returns where to go on, or 0 when done.
 */
static pgoff_t tide_drop_some(struct tide_file *file, pgoff_t first, pgoff_t last,
			      unsigned int limit, unsigned int *n)
{
	XA_STATE(xas, &file->pages, first >> TIDE_LEAF_BITS);
	struct tide_run run = { };
	struct tide_leaf *leaf;
	pgoff_t next = 0;

	*n = 0;
	xas_for_each(&xas, leaf, last >> TIDE_LEAF_BITS) {
		*n += tide_leaf_drop(file, &run, &xas, leaf, first, last);
		if (*n >= limit && xas.xa_index < last >> TIDE_LEAF_BITS) {
			next = (xas.xa_index + 1) << TIDE_LEAF_BITS;
			break;
		}
	}
	tide_run_end(file, &run);
	return next;
}

static pgoff_t tide_drop_chunk(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	unsigned int n;

	tide_outgoing_drop_locked(file, first, last);
	return tide_drop_some(file, first, last, TIDE_DROP_CHUNK, &n);
}

/**
 * tide_file_drop_locked() - forget a few pages
 * @file: the descriptor, locked
 * @first: first page index
 * @last: last page index, inclusive; a folio's worth of pages at most
 *
 * Context: any.
 */
void tide_file_drop_locked(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	while ((first = tide_drop_chunk(file, first, last)))
		;
}

/**
 * tide_file_drop() - forget a range of pages
 * @file: the descriptor, not locked
 * @first: first page index
 * @last: last page index, inclusive
 *
 * Context: any; interrupts are off for one chunk at a time.
 */
void tide_file_drop(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	unsigned long flags;

	tide_sequential_drop(file, first, last);
	do {
		tide_file_lock(file, flags);
		first = tide_drop_chunk(file, first, last);
		tide_file_unlock(file, flags);
	} while (first);
}

/**
 * tide_file_version() - which version of a page does a lender have?
 * @file: the descriptor, locked
 * @index: page index
 * @slot: set to the lender's slot
 *
 * Return: the version, or 0 when no lender has the page.
 */
u64 tide_file_version(struct tide_file *file, pgoff_t index, int *slot)
{
	struct tide_leaf *leaf = xa_load(&file->pages, index >> TIDE_LEAF_BITS);
	u64 entry = leaf ? *tide_leaf_entry(leaf, index) : 0;

	if (!entry)
		return 0;
	*slot = tide_entry_slot(entry);
	return tide_entry_version(entry);
}

/**
 * tide_file_erase_locked() - forget one version of a page
 * @file: the descriptor, locked
 * @index: page index
 * @version: the version; another one stays
 */
void tide_file_erase_locked(struct tide_file *file, pgoff_t index, u64 version)
{
	XA_STATE(xas, &file->pages, index >> TIDE_LEAF_BITS);
	struct tide_leaf *leaf = xas_load(&xas);
	u64 *entry;

	if (!leaf)
		return;
	entry = tide_leaf_entry(leaf, index);
	if (!*entry || tide_entry_version(*entry) != version)
		return;
	tide_slot_count(tide_entry_slot(*entry), -1);
	*entry = 0;
	tide_leaf_trim(&xas, leaf);
}

void tide_file_erase(struct tide_file *file, pgoff_t index, u64 version)
{
	unsigned long flags;

	tide_file_lock(file, flags);
	tide_file_erase_locked(file, index, version);
	tide_file_unlock(file, flags);
}

/**
 * tide_file_record() - note that a lender is about to have a page
 * @file: the descriptor, not locked
 * @index: page index
 * @version: of the page
 * @slot: of the lender
 * @still: asked under the lock: is the page still worth recording?
 * @arg: its argument
 *
 * Context: process; allocates without waiting.
 * Return: 0, -ESTALE when @still said no, or -ENOMEM.
 */
int tide_file_record(struct tide_file *file, pgoff_t index, u64 version,
		     int slot, bool (*still)(void *arg), void *arg)
{
	XA_STATE(xas, &file->pages, index >> TIDE_LEAF_BITS);
	struct tide_leaf *leaf;
	unsigned long flags;
	int err = 0;
	u64 *entry;

	xas_lock_irqsave(&xas, flags);
	if (!still(arg)) {
		err = -ESTALE;
		goto out;
	}
	leaf = tide_leaf_make(&xas);
	if (!leaf) {
		err = -ENOMEM;
		goto out;
	}
	entry = tide_leaf_entry(leaf, index);
	if (*entry)
		tide_slot_count(tide_entry_slot(*entry), -1);
	*entry = tide_entry(version, slot);
	tide_slot_count(slot, 1);
	tide_file_used(file);
out:
	xas_unlock_irqrestore(&xas, flags);
	return err;
}

/**
 * tide_catalog_evicted() - a lender says that it dropped a page
 * @id: the file's name on the wire
 * @index: page index
 * @version: of the page it dropped
 *
 * Context: process.
 */
void tide_catalog_evicted(u64 id, pgoff_t index, u64 version)
{
	struct tide_file *file;

	rcu_read_lock();
	hlist_for_each_entry_rcu(file, tide_bucket_by_id(id), by_id) {
		if (file->id == id) {
			tide_file_erase(file, index, version);
			break;
		}
	}
	rcu_read_unlock();
}

/* ------------------------------------------------------------------ */
/* purges							       */
/* ------------------------------------------------------------------ */

static void tide_leaf_purge(struct xa_state *xas, struct tide_leaf *leaf, int slot)
{
	unsigned int i;

	for (i = 0; i < TIDE_LEAF_ENTRIES; i++) {
		if (!leaf->entry[i] || tide_entry_slot(leaf->entry[i]) != slot)
			continue;
		tide_slot_count(slot, -1);
		leaf->entry[i] = 0;
	}
	tide_leaf_trim(xas, leaf);
}

/* Forgets a file of which nothing is left, neither here nor in memory. */
static void tide_file_tidy(struct tide_file *file)
{
	if (!READ_ONCE(file->mapping) && tide_file_empty(file))
		tide_file_kill(file);
}

static void tide_purge_lender(struct tide_file *file, void *arg)
{
	const int slot = *(int *)arg;
	XA_STATE(xas, &file->pages, 0);
	struct tide_leaf *leaf;
	unsigned long flags;
	unsigned int n = 0;

	xas_lock_irqsave(&xas, flags);
	xas_for_each(&xas, leaf, ULONG_MAX) {
		tide_leaf_purge(&xas, leaf, slot);
		if (++n % (TIDE_DROP_CHUNK / TIDE_LEAF_ENTRIES))
			continue;
		xas_pause(&xas);
		xas_unlock_irqrestore(&xas, flags);
		cond_resched();
		xas_lock_irqsave(&xas, flags);
	}
	xas_unlock_irqrestore(&xas, flags);
	tide_file_tidy(file);
}

/**
 * tide_catalog_purge_lender() - forget all pages that a lender has
 * @slot: the lender's slot; no put of its is under way any more
 *
 * Context: process.
 */
void tide_catalog_purge_lender(int slot)
{
	tide_catalog_for_each(tide_purge_lender, &slot);
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
	unsigned long flags, freed = 0;
	struct tide_file *file;
	unsigned int n;

	while (freed < pages && (file = tide_catalog_cold())) {
		tide_file_lock(file, flags);
		tide_drop_some(file, 0, ULONG_MAX,
			       min_t(unsigned long, pages - freed, TIDE_DROP_CHUNK), &n);
		tide_file_unlock(file, flags);
		freed += n;
		tide_file_tidy(file);
		tide_file_put(file);
	}
	return freed;
}

/**
 * tide_catalog_pages() - how many pages does the catalog name?
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
			pages += atomic64_read(&lender->catalog_pages);
	}
	rcu_read_unlock();
	return max_t(s64, pages, 0);
}
