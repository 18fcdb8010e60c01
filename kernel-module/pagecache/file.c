// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files of which pages are in the pool, by inode. Those that become known are
 * taken from a reserve: the put path allocates nothing (invariant 4).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "borrower/catalog_pages.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"
#include "pagecache/file.h"
#include "pagecache/filesystem.h"
#include "pagecache/sequential.h"

#define TIDE_RESERVE		512	/* descriptors ready for the put path */

static struct kmem_cache *tide_file_cache;
static HLIST_HEAD(tide_reserve);
static unsigned int tide_reserved;
static DEFINE_SPINLOCK(tide_reserve_lock);

/* ------------------------------------------------------------------ */
/* the reserve							       */
/* ------------------------------------------------------------------ */

static void tide_file_free(struct tide_object *object)
{
	struct tide_file *file = tide_file_of(object);

	tide_sequential_free(file);
	kmem_cache_free(tide_file_cache, file);
}

/**
 * tide_object_is_file() - is an object a file?
 * @object: the object
 *
 * Devices have a front end of their own.
 */
bool tide_object_is_file(const struct tide_object *object)
{
	return object->free == tide_file_free;
}

static struct tide_file *tide_file_alloc(void)
{
	struct tide_file *file = kmem_cache_zalloc(tide_file_cache, GFP_KERNEL | __GFP_NOWARN);

	if (file)
		tide_object_init(&file->object, tide_file_free);
	return file;
}

static void tide_reserve_return(struct tide_file *file)
{
	unsigned long flags;

	spin_lock_irqsave(&tide_reserve_lock, flags);
	hlist_add_head(&file->object.by_key, &tide_reserve);
	tide_reserved++;
	spin_unlock_irqrestore(&tide_reserve_lock, flags);
}

static void tide_reserve_fill(struct work_struct *work)
{
	while (READ_ONCE(tide_reserved) < TIDE_RESERVE) {
		struct tide_file *file = tide_file_alloc();

		if (!file)
			return;
		tide_reserve_return(file);
	}
}

static DECLARE_WORK(tide_reserve_work, tide_reserve_fill);

/* One of the reserve, without a look at whether more are wanted. Locked. */
static struct tide_file *tide_reserve_pop(void)
{
	struct tide_file *file;

	if (hlist_empty(&tide_reserve))
		return NULL;
	file = hlist_entry(tide_reserve.first, struct tide_file, object.by_key);
	hlist_del(&file->object.by_key);
	tide_reserved--;
	return file;
}

static struct tide_file *tide_reserve_take(void)
{
	struct tide_file *file;
	unsigned long flags;
	bool low;

	spin_lock_irqsave(&tide_reserve_lock, flags);
	file = tide_reserve_pop();
	low = tide_reserved < TIDE_RESERVE / 4 * 3;
	spin_unlock_irqrestore(&tide_reserve_lock, flags);
	if (low)
		queue_work(tide_catalog_queue, &tide_reserve_work);
	return file;
}

int tide_files_init(void)
{
	/* The shrinker gives files back, so they count as available memory. */
	tide_file_cache = kmem_cache_create("tidepool_file", sizeof(struct tide_file), 0,
					    SLAB_RECLAIM_ACCOUNT, NULL);
	if (tide_file_cache)
		tide_reserve_fill(NULL);
	if (tide_reserved)
		return 0;
	tide_files_exit();
	return -ENOMEM;
}

/* Every lender is gone, so no file has an entry and no buffer names one. */
void tide_files_exit(void)
{
	struct tide_file *file;

	cancel_work_sync(&tide_reserve_work);
	while ((file = tide_reserve_pop()))
		kmem_cache_free(tide_file_cache, file);
	rcu_barrier();		/* tide_file_free() is code of this module */
	kmem_cache_destroy(tide_file_cache);
}

/* ------------------------------------------------------------------ */
/* by inode							       */
/* ------------------------------------------------------------------ */

/* What a file is looked up by. */
struct tide_file_name {
	const struct inode *inode;
	u64 volume;
};

/* An ioctl may change the generation of an inode while it is in memory. */
static bool tide_file_is(const struct tide_object *object, const void *what)
{
	const struct tide_file *file = container_of(object, struct tide_file, object);
	const struct tide_file_name *name = what;
	const struct inode *inode = name->inode;

	return object->number == inode->i_ino && object->group == inode->i_sb &&
	       file->volume == name->volume &&
	       (file->generation == inode->i_generation ||
		READ_ONCE(file->mapping) == inode->i_mapping);
}

static u64 tide_file_key(const struct tide_file_name *name)
{
	return (unsigned long)name->inode->i_sb ^
	       (name->inode->i_ino + name->volume) * GOLDEN_RATIO_64;
}

/**
 * tide_file_peek() - the descriptor of an inode, without a reference
 * @inode: a regular file
 *
 * Context: any, in an RCU read section, which keeps what is returned.
 * Return: the descriptor, or NULL.
 */
struct tide_file *tide_file_peek(struct inode *inode)
{
	const struct tide_file_name name = { inode, tide_volume(inode) };
	struct tide_object *object = tide_table_peek(tide_file_key(&name), tide_file_is, &name);

	return object ? tide_file_of(object) : NULL;
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
	const struct tide_file_name name = { inode, tide_volume(inode) };
	struct tide_object *object = tide_table_find(tide_file_key(&name), tide_file_is, &name);

	return object ? tide_file_of(object) : NULL;
}

static void tide_file_fill(struct tide_file *file, const struct tide_file_name *name)
{
	const struct inode *inode = name->inode;

	file->object.key = tide_file_key(name);
	file->object.group = inode->i_sb;
	file->object.dev = inode->i_sb->s_dev;
	file->object.number = inode->i_ino;
	file->volume = name->volume;
	file->generation = inode->i_generation;
	refcount_set(&file->object.refs, 2);	/* the table's, the caller's */
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
	const struct tide_file_name name = { inode, tide_volume(inode) };
	struct tide_file *file = tide_file_find(inode);
	struct tide_object *other;

	if (file)
		return file;
	file = tide_reserve_take();
	if (!file)
		return NULL;
	tide_file_fill(file, &name);
	other = tide_table_insert(&file->object, tide_file_is, &name);
	if (!other)
		return file;
	tide_reserve_return(file);
	return tide_file_of(other);
}

/* ------------------------------------------------------------------ */
/* forgetting							       */
/* ------------------------------------------------------------------ */

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
	tide_sequential_drop(file, first, last);
	tide_object_drop(&file->object, first, last);
}
