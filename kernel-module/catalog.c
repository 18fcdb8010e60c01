// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog: which pages of which file are where, in which version (Puma,
 * section 3.4.1). A file is known by superblock, inode number and generation.
 * A page costs one 8-byte value entry of the file's xarray: version and slot
 * of the lender. What the catalog does not hold is read from disk, so losing
 * an entry is always safe; keeping one too long never is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "tidepool.h"

#define TIDE_FILE_BITS		12
#define TIDE_RESERVE		256	/* descriptors ready for the put path */
#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */
#define TIDE_SLOT_BITS		3

static struct hlist_head tide_files[1 << TIDE_FILE_BITS];
static struct hlist_head tide_files_by_id[1 << TIDE_FILE_BITS];
static DEFINE_SPINLOCK(tide_files_lock);	/* writers of both tables */
static unsigned int tide_file_count;
static u64 tide_last_id;
static atomic64_t tide_version = ATOMIC64_INIT(0);

static LIST_HEAD(tide_reserve);
static unsigned int tide_reserved;
static DEFINE_SPINLOCK(tide_reserve_lock);
static struct lock_class_key tide_file_lock_key;

/* ------------------------------------------------------------------ */
/* value entries						       */
/* ------------------------------------------------------------------ */

static void *tide_entry(u64 version, int slot)
{
	return xa_mk_value(version << TIDE_SLOT_BITS | slot);
}

static u64 tide_entry_version(void *entry)
{
	return xa_to_value(entry) >> TIDE_SLOT_BITS;
}

static int tide_entry_slot(void *entry)
{
	return xa_to_value(entry) & (TIDE_MAX_LENDERS - 1);
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
	tide_reserve_fill(NULL);
	return tide_reserved ? 0 : -ENOMEM;
}

/* Every lender is gone, so no file has an entry and no buffer names one. */
void tide_catalog_exit(void)
{
	struct tide_file *file, *next;

	cancel_work_sync(&tide_reserve_work);
	list_for_each_entry_safe(file, next, &tide_reserve, reserve)
		kfree(file);
	rcu_barrier();		/* tide_file_free_rcu() is code of this module */
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
		file->id = ++tide_last_id;
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

/* Drops at most a chunk; returns where to go on, or 0 when done. */
static pgoff_t tide_drop_chunk(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &file->pages, first);
	struct tide_run run = { };
	unsigned int n = 0;
	pgoff_t next = 0;
	void *entry;

	tide_outgoing_drop_locked(file, first, last);
	xas_for_each(&xas, entry, last) {
		tide_run_add(file, &run, tide_entry_slot(entry), xas.xa_index);
		xas_store(&xas, NULL);
		if (++n == TIDE_DROP_CHUNK && xas.xa_index < last) {
			next = xas.xa_index + 1;
			break;
		}
	}
	tide_run_end(file, &run);
	return next;
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
	void *entry = xa_load(&file->pages, index);

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
	XA_STATE(xas, &file->pages, index);
	void *entry = xas_load(&xas);

	if (!entry || tide_entry_version(entry) != version)
		return;
	tide_slot_count(tide_entry_slot(entry), -1);
	xas_store(&xas, NULL);
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
	XA_STATE(xas, &file->pages, index);
	unsigned long flags;
	int err = 0;
	void *old;

	do {
		xas_lock_irqsave(&xas, flags);
		if (!still(arg)) {
			err = -ESTALE;
		} else {
			old = xas_store(&xas, tide_entry(version, slot));
			if (!xas_error(&xas)) {
				tide_slot_count(slot, 1);
				if (old)
					tide_slot_count(tide_entry_slot(old), -1);
			}
		}
		xas_unlock_irqrestore(&xas, flags);
	} while (xas_nomem(&xas, GFP_NOWAIT | __GFP_NOWARN));
	return err ?: xas_error(&xas);
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

static void tide_purge_lender(struct tide_file *file, void *arg)
{
	const int slot = *(int *)arg;
	XA_STATE(xas, &file->pages, 0);
	unsigned int n = 0;
	unsigned long flags;
	bool idle;
	void *entry;

	xas_lock_irqsave(&xas, flags);
	xas_for_each(&xas, entry, ULONG_MAX) {
		if (tide_entry_slot(entry) == slot) {
			tide_slot_count(slot, -1);
			xas_store(&xas, NULL);
		}
		if (++n % TIDE_DROP_CHUNK)
			continue;
		xas_pause(&xas);
		xas_unlock_irqrestore(&xas, flags);
		cond_resched();
		xas_lock_irqsave(&xas, flags);
	}
	idle = !file->mapping;
	xas_unlock_irqrestore(&xas, flags);
	if (idle && tide_file_empty(file))
		tide_file_kill(file);
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
