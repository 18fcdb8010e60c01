/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of which file are where, in which version: catalog*.c. */
#ifndef TIDE_CATALOG_H
#define TIDE_CATALOG_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

struct tide_lender;
struct tide_sequential;

#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */

/**
 * struct tide_file - a file of which pages are, or were, in the pool
 *
 * Known by superblock, subvolume, inode number and generation, so that it
 * outlives the in-memory inode (invariant: never the mount). It is forgotten when
 * nothing of it is in the pool and its inode is not in memory. @pages holds leaves
 * of entries, 8 bytes a page: version and slot of the lender. @outgoing holds
 * the pages that are in a buffer and not yet acknowledged, by index. Both, @mapping and @dead
 * are guarded by @pages.xa_lock, taken with interrupts off; so is @changes, which
 * grows whenever pages of it are dropped because they may have changed.
 */
struct tide_file {
	struct hlist_node hash;
	struct super_block *sb;
	u64 volume;		/* the subvolume, where there are such */
	unsigned long ino;
	u32 generation;
	dev_t dev;		/* of @sb, for those who trace */
	u64 id;			/* its name on the wire */
	u64 changes;
	refcount_t refs;
	unsigned int pass;	/* of the walk that saw it last */
	struct xarray pages;
	struct rb_root outgoing;
	struct tide_sequential *sequential;	/* NULL until it is read with the filter on */
	struct address_space *mapping;	/* whose a_ops are wrapped, or NULL */
	union {
		struct list_head reserve;	/* while in the reserve */
		struct hlist_node by_id;	/* by id, while known */
	};
	struct rcu_head rcu;
	bool dead;
	bool used;		/* put to or read from since the shrinker looked */
};

static inline void tide_file_used(struct tide_file *file)
{
	if (!READ_ONCE(file->used))
		WRITE_ONCE(file->used, true);
}

#define tide_file_lock(file, flags)	xa_lock_irqsave(&(file)->pages, flags)
#define tide_file_unlock(file, flags)	xa_unlock_irqrestore(&(file)->pages, flags)

int tide_catalog_init(void);
void tide_catalog_exit(void);
struct tide_file *tide_file_find(struct inode *inode);
struct tide_file *tide_file_find_or_reserve(struct inode *inode);
void tide_file_put(struct tide_file *file);
void tide_file_kill(struct tide_file *file);
bool tide_file_empty(struct tide_file *file);
void tide_file_drop(struct tide_file *file, pgoff_t first, pgoff_t last);
void tide_file_unlearn(struct tide_file *file, pgoff_t index);
void tide_file_drop_locked(struct tide_file *file, pgoff_t first, pgoff_t last);
bool tide_file_has(struct tide_file *file, pgoff_t first, pgoff_t last);
u64 tide_file_version(struct tide_file *file, pgoff_t index, int *slot);
void tide_file_erase(struct tide_file *file, pgoff_t index, u64 version);
void tide_file_erase_locked(struct tide_file *file, pgoff_t index, u64 version);
int tide_file_record(struct tide_file *file, pgoff_t index, u64 version,
		     int slot, bool (*still)(void *arg), void *arg);
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version);
void tide_catalog_granted(struct tide_lender *lender);
void tide_catalog_purge_lender(int slot);
void tide_catalog_purge_super(struct super_block *sb);
void tide_catalog_for_each(void (*fn)(struct tide_file *file, void *arg), void *arg);

extern unsigned int tide_file_count;

static inline unsigned int tide_catalog_files(void)
{
	return READ_ONCE(tide_file_count);
}

u64 tide_catalog_pages(void);
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages);
u64 tide_next_version(void);
void tide_catalog_sweep_if_due(void);

/* catalog_shrinker.c */
int tide_shrinker_init(void);
void tide_shrinker_exit(void);

extern struct workqueue_struct *tide_catalog_queue;

/* catalog_table.c */
int tide_table_init(void);
void tide_table_exit(void);
struct tide_file *tide_file_find_id(u64 id);
struct tide_file *tide_table_insert(struct tide_file *file, struct inode *inode);
void tide_table_remove(struct tide_file *file);
void tide_table_for_each(const struct super_block *sb,
			 void (*fn)(struct tide_file *file, void *arg), void *arg);
struct tide_file *tide_table_cold(void);

/* catalog_pages.c */
int tide_leaves_init(void);
void tide_leaves_exit(void);
unsigned int tide_file_shrink(struct tide_file *file, unsigned int limit);
void tide_file_evicted(struct tide_file *file, pgoff_t index, u64 version, int slot);
void tide_file_purge(struct tide_file *file, const u64 *before);

#endif /* TIDE_CATALOG_H */
