// SPDX-License-Identifier: GPL-2.0-only
/*
 * A mode that doubts itself: one of so many hits is read from disk as well, and
 * the two are compared. The reader gets what the disk has.
 *
 * What came from the pool is reduced to a checksum, then the file system reads the
 * folio, which is still locked and not up to date, and unlocks it. The comparison
 * is made under the folio's lock, and only when both must be the same: the folio is
 * clean, nothing of the file has been dropped since before its page was looked up in
 * the catalog, and no truncation or direct write is under way. Whatever changes a
 * page drops it first (invariant 1), before and after where it takes its time, and
 * waits for the folio, if it touches the page cache. So what differs then was
 * wrong when it was served.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/kdev_t.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/siphash.h>
#include <linux/slab.h>

#include "base/stats.h"
#include "borrower/catalog_pages.h"
#include "borrower/disk_latency.h"
#include "borrower/object.h"
#include "pagecache/file.h"
#include "pagecache/inflight.h"
#include "pagecache/verify.h"

/**
 * struct tide_verify - a folio that was filled from the pool and is doubted
 * @list: in one of the two lists below
 * @folio: with a reference; locked until the file system has read it
 * @mapping: of @folio, perhaps no longer
 * @file: whose folio it is; holds a reference
 * @orig: the file system's own operations
 * @changes: of @file, from before the pool was asked
 * @pages: in @folio
 * @sum: of each page as it came
 */
struct tide_verify {
	struct list_head list;
	struct folio *folio;
	struct address_space *mapping;
	struct tide_file *file;
	const struct address_space_operations *orig;
	u64 changes;
	unsigned int pages;
	u64 sum[];
};

unsigned int tide_verify_one_in;

static siphash_key_t tide_verify_key;
static atomic_t tide_verify_turn = ATOMIC_INIT(0);
static LIST_HEAD(tide_verify_unread);
static LIST_HEAD(tide_verify_read);
static DEFINE_SPINLOCK(tide_verify_lock);	/* both lists */

static void tide_verify_reads(struct work_struct *work);
static void tide_verify_compares(struct work_struct *work);

/* Two of them: a folio that is locked never waits behind one that is waited for. */
static DECLARE_WORK(tide_verify_read_work, tide_verify_reads);
static DECLARE_WORK(tide_verify_compare_work, tide_verify_compares);

int tide_verify_init(void)
{
	get_random_bytes(&tide_verify_key, sizeof(tide_verify_key));
	return 0;
}

static u64 tide_verify_sum(struct folio *folio, unsigned int i)
{
	void *bytes = kmap_local_folio(folio, i * PAGE_SIZE);
	u64 sum = siphash(bytes, PAGE_SIZE, &tide_verify_key);

	kunmap_local(bytes);
	return sum;
}

static bool tide_verify_chosen(void)
{
	unsigned int n = READ_ONCE(tide_verify_one_in);

	return n && !((unsigned int)atomic_inc_return(&tide_verify_turn) % n);
}

static void tide_verify_queue(struct tide_verify *v)
{
	spin_lock(&tide_verify_lock);
	list_add_tail(&v->list, &tide_verify_unread);
	spin_unlock(&tide_verify_lock);
	queue_work(tide_disk_queue, &tide_verify_read_work);
}

/**
 * tide_folio_came() - a folio is filled from the pool: its readers may go on
 * @folio: locked; one reference is dropped
 * @file: whose it is
 * @orig: the file system's own operations
 * @changes: of @file, from before the pool was asked for any page of the folio
 *
 * If it is doubted, they go on when the disk has been read.
 *
 * Context: process; allocates without waiting.
 */
void tide_folio_came(struct folio *folio, struct tide_file *file,
		     const struct address_space_operations *orig, u64 changes)
{
	unsigned int i, pages = folio_nr_pages(folio);
	struct tide_verify *v = NULL;

	if (tide_verify_chosen())
		v = kmalloc(struct_size(v, sum, pages), GFP_NOWAIT | __GFP_NOWARN);
	if (!v) {
		folio_mark_uptodate(folio);
		folio_unlock(folio);
		folio_put(folio);
		return;
	}
	v->folio = folio;
	v->mapping = folio->mapping;
	v->file = file;
	tide_object_hold(&file->object);
	v->orig = orig;
	v->changes = changes;
	v->pages = pages;
	for (i = 0; i < pages; i++)
		v->sum[i] = tide_verify_sum(folio, i);
	tide_verify_queue(v);
}

static void tide_verify_take(struct list_head *from, struct list_head *list)
{
	spin_lock(&tide_verify_lock);
	list_splice_tail_init(from, list);
	spin_unlock(&tide_verify_lock);
}

static void tide_verify_reads(struct work_struct *work)
{
	unsigned int nofs = memalloc_nofs_save();
	struct tide_verify *v;
	struct blk_plug plug;
	LIST_HEAD(list);

	tide_verify_take(&tide_verify_unread, &list);
	blk_start_plug(&plug);
	list_for_each_entry(v, &list, list)
		v->orig->read_folio(NULL, v->folio);	/* unlocks it */
	blk_finish_plug(&plug);
	memalloc_nofs_restore(nofs);

	spin_lock(&tide_verify_lock);
	list_splice_tail(&list, &tide_verify_read);
	spin_unlock(&tide_verify_lock);
	queue_work(tide_disk_queue, &tide_verify_compare_work);
}

/* With the folio locked: must it be as it came? */
static bool tide_verify_comparable(const struct tide_verify *v)
{
	struct folio *folio = v->folio;
	unsigned long flags;
	bool same;

	if (folio->mapping != v->mapping || !folio_test_uptodate(folio) ||
	    folio_test_dirty(folio) || folio_test_writeback(folio))
		return false;
	tide_object_lock(&v->file->object, flags);
	same = !v->file->object.dead && v->file->object.changes == v->changes &&
	       !tide_gate_closed(v->mapping, folio->index, folio->index + v->pages - 1);
	tide_object_unlock(&v->file->object, flags);
	return same;
}

static void tide_verify_failed(const struct tide_verify *v, pgoff_t index)
{
	const struct tide_object *object = &v->file->object;

	tide_count(verify_failed);
	pr_warn_ratelimited("verify: device %u:%u inode %llu page %lu: what came from the pool is not what the disk has\n",
			    MAJOR(object->dev), MINOR(object->dev), object->number, index);
	tide_object_unlearn(&v->file->object, index);
}

static void tide_verify_compare(const struct tide_verify *v)
{
	unsigned int i;

	folio_lock(v->folio);	/* when it has been read */
	if (tide_verify_comparable(v)) {
		tide_count_pages(verified, v->pages);
		for (i = 0; i < v->pages; i++)
			if (tide_verify_sum(v->folio, i) != v->sum[i])
				tide_verify_failed(v, v->folio->index + i);
	}
	folio_unlock(v->folio);
}

static void tide_verify_compares(struct work_struct *work)
{
	struct tide_verify *v, *next;
	LIST_HEAD(list);

	tide_verify_take(&tide_verify_read, &list);
	list_for_each_entry_safe(v, next, &list, list) {
		tide_verify_compare(v);
		folio_put(v->folio);
		tide_file_put(v->file);
		kfree(v);
	}
}
