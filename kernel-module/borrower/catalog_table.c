// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of the catalog's files, by inode and by number. It grows and shrinks
 * with them, in a worker, a few files at a time: the put path allocates nothing
 * and is never kept waiting. (The kernel's rhashtable allocates where a bucket is
 * long, and on 6.1 its worker holds a bucket with interrupts on, which whoever has
 * the lock of a mapping must not wait for.)
 *
 * Lookups take no lock. A file that is moved meanwhile may be passed over, and a
 * file that is not found is a page that is not dropped: so a lookup that finds
 * nothing asks whether one was moved, and then looks again.
 */
#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/seqlock.h>
#include <linux/slab.h>

#include "borrower/catalog.h"
#include "pagecache/filesystem.h"

#define TIDE_TABLE_LEAST	10	/* bits */
#define TIDE_TABLE_MOST		26
#define TIDE_MOVES		64	/* files moved with interrupts off */
#define TIDE_HAND_BUCKETS	64	/* looked at with interrupts off */

struct tide_table {
	unsigned int bits;
	struct hlist_head *by_id;
	struct hlist_head by_inode[];
};

static struct tide_table __rcu *tide_table;
static struct tide_table __rcu *tide_table_next;	/* what it is moved to */
static DEFINE_SPINLOCK(tide_files_lock);		/* writers of both */
static seqcount_spinlock_t tide_moves = SEQCNT_SPINLOCK_ZERO(tide_moves, &tide_files_lock);
static DEFINE_MUTEX(tide_table_mutex);	/* walked, or moved */
unsigned int tide_file_count;

static void tide_table_resize(struct work_struct *work);
static DECLARE_WORK(tide_table_work, tide_table_resize);

static struct tide_table *tide_table_alloc(unsigned int bits)
{
	struct tide_table *table;

	table = kvzalloc(struct_size(table, by_inode, 2UL << bits),
			 GFP_KERNEL | __GFP_NOWARN);
	if (table) {
		table->bits = bits;
		table->by_id = table->by_inode + (1UL << bits);
	}
	return table;
}

int tide_table_init(void)
{
	struct tide_table *table = tide_table_alloc(TIDE_TABLE_LEAST);

	RCU_INIT_POINTER(tide_table, table);
	return table ? 0 : -ENOMEM;
}

/* No file is in it, and its worker is done. */
void tide_table_exit(void)
{
	kvfree(rcu_dereference_protected(tide_table, true));
}

/* Whoever calls has the lock or the mutex. */
static struct tide_table *tide_table_now(void)
{
	return rcu_dereference_protected(tide_table, lockdep_is_held(&tide_files_lock) ||
					 lockdep_is_held(&tide_table_mutex));
}

/* Where files go that become known. */
static struct tide_table *tide_table_newest(void)
{
	return rcu_dereference_protected(tide_table_next, lockdep_is_held(&tide_files_lock)) ?:
	       tide_table_now();
}

/* ------------------------------------------------------------------ */
/* looking up							       */
/* ------------------------------------------------------------------ */

static struct hlist_head *tide_bucket(struct tide_table *table, const struct super_block *sb,
				      u64 volume, unsigned long ino)
{
	return &table->by_inode[hash_64((unsigned long)sb ^ (ino + volume) * GOLDEN_RATIO_64,
					table->bits)];
}

static struct hlist_head *tide_bucket_by_id(struct tide_table *table, u64 id)
{
	return &table->by_id[hash_64(id, table->bits)];
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

static bool tide_file_get(struct tide_file *file)
{
	/* A dead one has let go of its inode's mapping: pairs with tide_file_end(). */
	return !smp_load_acquire(&file->dead) && refcount_inc_not_zero(&file->refs);
}

static struct tide_file *tide_table_search(struct tide_table *table, struct inode *inode,
					   u64 volume)
{
	struct tide_file *file;

	if (!table)
		return NULL;
	hlist_for_each_entry_rcu(file, tide_bucket(table, inode->i_sb, volume, inode->i_ino),
				 hash)
		if (tide_file_is(file, inode, volume) && tide_file_get(file))
			return file;
	return NULL;
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
	unsigned int seq;

	rcu_read_lock();
	do {
		seq = read_seqcount_begin(&tide_moves);
		file = tide_table_search(rcu_dereference(tide_table), inode, volume) ?:
		       tide_table_search(rcu_dereference(tide_table_next), inode, volume);
	} while (!file && read_seqcount_retry(&tide_moves, seq));
	rcu_read_unlock();
	return file;
}

static struct tide_file *tide_table_search_id(struct tide_table *table, u64 id)
{
	struct tide_file *file;

	if (!table)
		return NULL;
	hlist_for_each_entry_rcu(file, tide_bucket_by_id(table, id), by_id)
		if (file->id == id && tide_file_get(file))
			return file;
	return NULL;
}

/**
 * tide_file_find_id() - the descriptor that has a number
 * @id: the file's name on the wire
 *
 * Context: any.
 * Return: the descriptor with a reference taken, or NULL.
 */
struct tide_file *tide_file_find_id(u64 id)
{
	struct tide_file *file;
	unsigned int seq;

	rcu_read_lock();
	do {
		seq = read_seqcount_begin(&tide_moves);
		file = tide_table_search_id(rcu_dereference(tide_table), id) ?:
		       tide_table_search_id(rcu_dereference(tide_table_next), id);
	} while (!file && read_seqcount_retry(&tide_moves, seq));
	rcu_read_unlock();
	return file;
}

/* ------------------------------------------------------------------ */
/* entering and leaving						       */
/* ------------------------------------------------------------------ */

static void tide_table_add(struct tide_table *table, struct tide_file *file)
{
	hlist_add_head_rcu(&file->by_id, tide_bucket_by_id(table, file->id));
	hlist_add_head_rcu(&file->hash,
			   tide_bucket(table, file->sb, file->volume, file->ino));
}

/* More files than buckets are too many, less than an eighth too few. */
static bool tide_table_fits(const struct tide_table *table)
{
	unsigned long size = 1UL << table->bits, files = tide_catalog_files();

	return (files <= size || table->bits == TIDE_TABLE_MOST) &&
	       (files >= size / 8 || table->bits == TIDE_TABLE_LEAST);
}

static void tide_table_refit(struct tide_table *table)
{
	if (unlikely(!tide_table_fits(table)))
		queue_work(tide_catalog_queue, &tide_table_work);
}

/**
 * tide_table_insert() - make a file known, unless its inode is
 * @file: filled in, not known
 * @inode: its inode
 *
 * Context: any; allocates nothing.
 * Return: NULL, or the descriptor that the inode has, with a reference taken.
 */
struct tide_file *tide_table_insert(struct tide_file *file, struct inode *inode)
{
	struct tide_table *table;
	struct tide_file *other;
	unsigned long flags;

	spin_lock_irqsave(&tide_files_lock, flags);
	other = tide_file_find(inode);
	if (!other) {
		table = tide_table_newest();
		tide_table_add(table, file);
		WRITE_ONCE(tide_file_count, tide_file_count + 1);
		tide_table_refit(table);
	}
	spin_unlock_irqrestore(&tide_files_lock, flags);
	return other;
}

/**
 * tide_table_remove() - a file is known no longer
 * @file: dead, and known until now
 *
 * Context: any.
 */
void tide_table_remove(struct tide_file *file)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_files_lock, flags);
	hlist_del_rcu(&file->hash);
	hlist_del_rcu(&file->by_id);
	WRITE_ONCE(tide_file_count, tide_file_count - 1);
	tide_table_refit(tide_table_newest());
	spin_unlock_irqrestore(&tide_files_lock, flags);
}

/* ------------------------------------------------------------------ */
/* growing and shrinking					       */
/* ------------------------------------------------------------------ */

static unsigned int tide_bucket_move(struct tide_table *from, struct tide_table *to,
				     unsigned long at)
{
	struct tide_file *file;
	struct hlist_node *next;
	unsigned int n = 0;

	hlist_for_each_entry_safe(file, next, &from->by_inode[at], hash) {
		hlist_del_rcu(&file->hash);
		hlist_add_head_rcu(&file->hash, tide_bucket(to, file->sb, file->volume,
							    file->ino));
		n++;
	}
	hlist_for_each_entry_safe(file, next, &from->by_id[at], by_id) {
		hlist_del_rcu(&file->by_id);
		hlist_add_head_rcu(&file->by_id, tide_bucket_by_id(to, file->id));
		n++;
	}
	return n;
}

/* Moves a few files; returns the bucket to go on with. */
static unsigned long tide_table_move(struct tide_table *from, struct tide_table *to,
				     unsigned long at)
{
	unsigned long end = min(at + TIDE_MOVES, 1UL << from->bits);
	unsigned int n = 0;

	spin_lock_irq(&tide_files_lock);
	write_seqcount_begin(&tide_moves);
	while (at < end && n < TIDE_MOVES)
		n += tide_bucket_move(from, to, at++);
	write_seqcount_end(&tide_moves);
	spin_unlock_irq(&tide_files_lock);
	return at;
}

/* Sets both pointers; lookups see them change together. */
static void tide_table_set(struct tide_table *table, struct tide_table *next)
{
	spin_lock_irq(&tide_files_lock);
	write_seqcount_begin(&tide_moves);
	rcu_assign_pointer(tide_table, table);
	rcu_assign_pointer(tide_table_next, next);
	write_seqcount_end(&tide_moves);
	spin_unlock_irq(&tide_files_lock);
}

/* Moves all files; returns the table that is of no use any more. */
static struct tide_table *tide_table_replace(struct tide_table *next)
{
	struct tide_table *table;
	unsigned long at = 0;

	mutex_lock(&tide_table_mutex);
	table = tide_table_now();
	tide_table_set(table, next);
	while (at < 1UL << table->bits) {
		at = tide_table_move(table, next, at);
		cond_resched();
	}
	tide_table_set(next, NULL);
	mutex_unlock(&tide_table_mutex);
	synchronize_rcu();
	return table;
}

/* Nobody else sets the table. Without memory it stays until the next file comes or goes. */
static void tide_table_resize(struct work_struct *work)
{
	unsigned int bits = clamp_t(unsigned int, fls(tide_catalog_files()),
				    TIDE_TABLE_LEAST, TIDE_TABLE_MOST);
	struct tide_table *next;

	if (tide_table_fits(rcu_dereference_protected(tide_table, true)))
		return;		/* asked for while it was moved */
	next = tide_table_alloc(bits);
	if (next)
		kvfree(tide_table_replace(next));
}

/* ------------------------------------------------------------------ */
/* all of them							       */
/* ------------------------------------------------------------------ */

static struct tide_file *tide_bucket_next(struct hlist_head *bucket,
					  const struct super_block *sb, unsigned int pass)
{
	struct tide_file *file;

	if (hlist_empty(bucket))	/* a file that comes now need not be seen */
		return NULL;
	spin_lock_irq(&tide_files_lock);
	hlist_for_each_entry(file, bucket, hash) {
		if (file->pass != pass && (!sb || file->sb == sb) &&
		    refcount_inc_not_zero(&file->refs)) {
			file->pass = pass;
			spin_unlock_irq(&tide_files_lock);
			return file;
		}
	}
	spin_unlock_irq(&tide_files_lock);
	return NULL;
}

/**
 * tide_table_for_each() - call a function for every file, or for those of a file system
 * @sb: the file system, or NULL
 * @fn: may sleep, may kill the file
 * @arg: its second argument
 *
 * Every file that is known throughout is visited, whatever comes and goes, and so is
 * one that dies until nothing of it is left.
 *
 * Context: process.
 */
void tide_table_for_each(const struct super_block *sb,
			 void (*fn)(struct tide_file *file, void *arg), void *arg)
{
	static unsigned int pass;
	struct tide_table *table;
	struct tide_file *file;
	unsigned long i;

	mutex_lock(&tide_table_mutex);
	pass++;
	table = tide_table_now();
	for (i = 0; i < 1UL << table->bits; i++) {
		while ((file = tide_bucket_next(&table->by_inode[i], sb, pass))) {
			fn(file, arg);
			tide_file_put(file);
		}
		cond_resched();
	}
	mutex_unlock(&tide_table_mutex);
}

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

/* Looks at some buckets, from the hand of a clock on. */
static struct tide_file *tide_table_turn(unsigned long *left)
{
	static unsigned long hand;
	struct tide_table *table = tide_table_now();
	struct tide_file *file = NULL;
	unsigned int n;

	*left = min(*left, 2UL << table->bits);
	for (n = 0; !file && *left && n < TIDE_HAND_BUCKETS; n++) {
		hand &= (1UL << table->bits) - 1;
		file = tide_bucket_cold(&table->by_inode[hand]);
		if (!file) {
			hand++;
			--*left;
		}
	}
	return file;
}

/**
 * tide_table_cold() - a file that has pages and was not used of late
 *
 * Goes on where it stopped, twice round at most.
 *
 * Context: any.
 * Return: the descriptor with a reference taken, or NULL.
 */
struct tide_file *tide_table_cold(void)
{
	unsigned long left = ULONG_MAX, flags;
	struct tide_file *file;

	do {
		spin_lock_irqsave(&tide_files_lock, flags);
		file = tide_table_turn(&left);
		spin_unlock_irqrestore(&tide_files_lock, flags);
	} while (!file && left);
	return file;
}
