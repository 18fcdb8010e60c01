// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender's store (Puma, section 3.4.2). A remote page is a clean folio of
 * a private inode, one inode for each remote file, the page's index as index.
 * It sits at the cold end of the inactive file list, so the kernel's ordinary
 * reclaim takes it before anything of the guest's own, and `free` counts it as
 * available. Storing never enters reclaim: when memory is short, the oldest
 * page of the same borrower makes room (invariant 7).
 *
 * folio->private points to a note of the page, which goes when the page leaves
 * the page cache; the notes of a store are a list in the order of their pages'
 * arrival. The store's mutex orders adding, recycling and forgetting; the kernel
 * may reclaim a page at any time, unless somebody has a reference: both together
 * keep the note.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hashtable.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#include "tidepool.h"

#define TIDE_FS_MAGIC		0x54494445	/* "TIDE" */
#define TIDE_STORE_BITS		10
#define TIDE_NOTICES		4096
#define TIDE_FREE_FLOOR_SHIFT	6		/* 1/64 of memory stays free */
#define TIDE_INDEX_END		(MAX_LFS_FILESIZE >> PAGE_SHIFT)
#define TIDE_NOTE_GFP		(__GFP_NOWARN | __GFP_NOMEMALLOC)
#define TIDE_STORE_GFP		(__GFP_HIGHMEM | __GFP_MOVABLE | __GFP_HARDWALL | \
				 TIDE_NOTE_GFP)

u64 tide_lend_bytes;
u64 tide_reserve_bytes = 64 << 20;
static atomic64_t tide_lent_pages = ATOMIC64_INIT(0);
static struct vfsmount *tide_mnt;
static struct kmem_cache *tide_notes;

struct tide_store_file {
	struct hlist_node hash;
	u64 id;
	struct inode *inode;
	struct tide_store *store;
};

/**
 * struct tide_note - what is known of a page that is here
 * @order: in the store's list of that name
 * @file: whose page it is
 * @index: page index
 * @version: of the page
 * @tag: what proves its contents to the borrower
 */
struct tide_note {
	struct list_head order;
	struct tide_store_file *file;
	pgoff_t index;
	u64 version;
	u8 tag[TIDE_TAG_SIZE];
};

/**
 * struct tide_store - the pages that one borrower has here
 * @borrower: whose
 * @mutex: @files, and adding pages
 * @files: by remote file
 * @pages: how many are here
 * @limit: most that it may have
 * @lock: guards what follows, taken with interrupts off
 * @order: notes of all pages, the oldest first
 * @notice_head: where the next notice goes
 * @notice_tail: the first one not sent
 * @notice: a ring of them
 */
struct tide_store {
	struct tide_borrower *borrower;
	struct mutex mutex;	/* outside the mapping's locks */
	DECLARE_HASHTABLE(files, TIDE_STORE_BITS);
	atomic64_t pages;
	u64 limit;
	spinlock_t lock;	/* a leaf */
	struct list_head order;
	unsigned int notice_head, notice_tail;
	struct tide_page_id notice[TIDE_NOTICES];
};

/* ------------------------------------------------------------------ */
/* the private file system					       */
/* ------------------------------------------------------------------ */

/* A folio that is just being moved has no note for a moment: no version. */
static u64 tide_folio_version(const struct folio *folio)
{
	const struct tide_note *note = READ_ONCE(folio->private);

	return note ? note->version : 0;
}

static void tide_note_free(struct folio *folio)
{
	if (folio->private)
		kmem_cache_free(tide_notes, folio->private);
	folio->private = NULL;
}

#ifdef CONFIG_MIGRATION
/* Compaction moves a folio that nobody else refers to: its note goes with it. */
static int tide_migrate_folio(struct address_space *mapping, struct folio *dst,
			      struct folio *src, enum migrate_mode mode)
{
	struct tide_note *note = src->private;
	int ret = migrate_folio(mapping, dst, src, mode);

	if (!ret) {
		src->private = NULL;
		WRITE_ONCE(dst->private, note);
	}
	return ret;
}
#endif

const struct address_space_operations tide_store_aops = {
	.dirty_folio = noop_dirty_folio,
#ifdef CONFIG_MIGRATION
	.migrate_folio = tide_migrate_folio,
#endif
};

static int tide_fs_init(struct fs_context *fc)
{
	return init_pseudo(fc, TIDE_FS_MAGIC) ? 0 : -ENOMEM;
}

/* No .owner: kern_mount() would pin the module for ever. */
static struct file_system_type tide_fs = {
	.name = "tidepool",
	.init_fs_context = tide_fs_init,
	.kill_sb = kill_anon_super,
};

int tide_store_init(void)
{
	tide_notes = kmem_cache_create("tidepool_note", sizeof(struct tide_note), 0,
				       SLAB_RECLAIM_ACCOUNT, NULL);
	if (!tide_notes)
		return -ENOMEM;
	tide_mnt = kern_mount(&tide_fs);
	if (IS_ERR(tide_mnt))
		kmem_cache_destroy(tide_notes);
	return PTR_ERR_OR_ZERO(tide_mnt);
}

void tide_store_exit(void)
{
	kern_unmount(tide_mnt);
	if (atomic64_read(&tide_lent_pages))
		tide_warn("%lld pages are still lent\n",
			  (s64)atomic64_read(&tide_lent_pages));
	kmem_cache_destroy(tide_notes);
}

u64 tide_store_lent(void)
{
	return atomic64_read(&tide_lent_pages);
}

u64 tide_store_pages(struct tide_store *store)
{
	return atomic64_read(&store->pages);
}

/* ------------------------------------------------------------------ */
/* remote files							       */
/* ------------------------------------------------------------------ */

static struct tide_store_file *tide_store_find(struct tide_store *store, u64 id)
{
	struct tide_store_file *file;

	hash_for_each_possible(store->files, file, hash, id)
		if (file->id == id)
			return file;
	return NULL;
}

static struct tide_store_file *tide_store_open(struct tide_store *store, u64 id)
{
	struct tide_store_file *file = tide_store_find(store, id);
	unsigned int noreclaim;

	if (file)
		return file;
	noreclaim = memalloc_noreclaim_save();
	file = kzalloc(sizeof(*file), GFP_KERNEL | __GFP_NOWARN);
	if (file)
		file->inode = alloc_anon_inode(tide_mnt->mnt_sb);
	memalloc_noreclaim_restore(noreclaim);
	if (!file || IS_ERR(file->inode)) {
		kfree(file);
		return NULL;
	}
	file->id = id;
	file->store = store;
	file->inode->i_private = file;
	file->inode->i_mapping->a_ops = &tide_store_aops;
	mapping_set_gfp_mask(file->inode->i_mapping, GFP_HIGHUSER_MOVABLE);
	i_size_write(file->inode, MAX_LFS_FILESIZE);
	hash_add(store->files, &file->hash, id);
	return file;
}

static void tide_store_close(struct tide_store_file *file)
{
	hash_del(&file->hash);
	iput(file->inode);	/* drops its pages */
	kfree(file);
}

/* ------------------------------------------------------------------ */
/* notices							       */
/* ------------------------------------------------------------------ */

/* Lost when there is no room: the borrower then learns it from a miss. */
static void tide_store_notice(struct tide_store *store, u64 file, pgoff_t index,
			      u64 version)
{
	unsigned long flags;

	spin_lock_irqsave(&store->lock, flags);
	if (store->notice_head - store->notice_tail < TIDE_NOTICES)
		store->notice[store->notice_head++ % TIDE_NOTICES] =
			(struct tide_page_id) {
				.file = cpu_to_le64(file),
				.index = cpu_to_le64(index),
				.version = cpu_to_le64(version),
			};
	spin_unlock_irqrestore(&store->lock, flags);
	schedule_delayed_work(&store->borrower->notify, HZ / 20);
}

/**
 * tide_store_notices() - take notices that are to be sent
 * @store: the store
 * @id: where to
 * @max: at most this many
 *
 * Return: how many were taken.
 */
unsigned int tide_store_notices(struct tide_store *store,
				struct tide_page_id *id, unsigned int max)
{
	unsigned int n = 0;

	spin_lock_irq(&store->lock);
	while (n < max && store->notice_tail != store->notice_head)
		id[n++] = store->notice[store->notice_tail++ % TIDE_NOTICES];
	spin_unlock_irq(&store->lock);
	return n;
}

static void tide_store_uncharge(struct tide_store *store)
{
	atomic64_dec(&store->pages);
	atomic64_dec(&tide_lent_pages);
}

/**
 * tide_store_deleted() - a page of a store leaves the page cache
 * @mapping: of a remote file
 * @folio: still in it; frozen when the kernel reclaims it
 *
 * Context: tracepoint, i_pages lock held, interrupts off.
 */
void tide_store_deleted(struct address_space *mapping, struct folio *folio)
{
	struct tide_store_file *file = mapping->host->i_private;
	struct tide_store *store = file->store;
	struct tide_note *note = folio->private;
	unsigned long flags;

	spin_lock_irqsave(&store->lock, flags);
	list_del(&note->order);
	spin_unlock_irqrestore(&store->lock, flags);
	tide_store_uncharge(store);
	if (!folio_ref_count(folio)) {
		atomic64_inc(&store->borrower->stats.reclaimed);
		tide_store_notice(store, file->id, note->index, note->version);
	}
	tide_note_free(folio);
}

/* ------------------------------------------------------------------ */
/* pages							       */
/* ------------------------------------------------------------------ */

static void tide_store_remove(struct tide_store_file *file, pgoff_t first, pgoff_t last)
{
	if (first > last || first >= TIDE_INDEX_END)	/* a borrower may say so */
		return;
	truncate_inode_pages_range(file->inode->i_mapping, (loff_t)first << PAGE_SHIFT,
				   last >= TIDE_INDEX_END ? -1 :
				   (((loff_t)last + 1) << PAGE_SHIFT) - 1);
}

/* A copy of the oldest page's note; false when there is no page. Mutex held. */
static bool tide_store_oldest(struct tide_store *store, struct tide_note *copy)
{
	struct tide_note *note;

	spin_lock_irq(&store->lock);
	note = list_first_entry_or_null(&store->order, struct tide_note, order);
	if (note)
		*copy = *note;
	spin_unlock_irq(&store->lock);
	return note;
}

/* Drops the oldest page; false when there is none. Mutex held. */
static bool tide_store_recycle(struct tide_store *store)
{
	struct tide_note oldest;
	struct folio *folio;

	while (tide_store_oldest(store, &oldest)) {
		folio = tide_find_folio(oldest.file->inode->i_mapping, oldest.index);
		if (!folio)
			continue;	/* the kernel has taken it meanwhile */
		tide_store_remove(oldest.file, oldest.index, oldest.index);
		folio_put(folio);
		atomic64_inc(&store->borrower->stats.recycled);
		tide_store_notice(store, oldest.file->id, oldest.index, oldest.version);
		return true;
	}
	return false;
}

/* Counts a page before it is there, so that batches cannot overshoot. */
static bool tide_store_charge(struct tide_store *store)
{
	u64 lent = atomic64_inc_return(&tide_lent_pages);
	u64 pages = atomic64_inc_return(&store->pages);

	if (pages <= READ_ONCE(store->limit) &&
	    lent <= READ_ONCE(tide_lend_bytes) >> PAGE_SHIFT)
		return true;
	tide_store_uncharge(store);
	return false;
}

/* May one page more be taken without harm to the guest? */
static bool tide_store_may_grow(void)
{
	u64 available = si_mem_available();	/* counts the lent pages */

	return available > tide_store_lent() +
			   (READ_ONCE(tide_reserve_bytes) >> PAGE_SHIFT) &&
	       global_zone_page_state(NR_FREE_PAGES) >
			totalram_pages() >> TIDE_FREE_FLOOR_SHIFT;
}

static struct folio *tide_store_alloc(struct tide_store *store)
{
	struct folio *folio;

	if (!tide_store_charge(store))
		return NULL;
	folio = tide_alloc_folio(TIDE_STORE_GFP);
	if (!folio)
		goto uncharge;
	folio->private = kmem_cache_alloc(tide_notes, TIDE_NOTE_GFP);
	if (folio->private)
		return folio;
	folio_put(folio);
uncharge:
	tide_store_uncharge(store);
	return NULL;
}

/**
 * tide_store_prepare() - a page to receive into
 * @store: the store
 *
 * Never enters reclaim and takes nothing of the reserve: when memory or the
 * quota is short, the oldest page here is dropped first.
 *
 * Context: process.
 * Return: a folio for tide_store_add() or tide_store_cancel(), or NULL when
 * nothing can be spared.
 */
struct folio *tide_store_prepare(struct tide_store *store)
{
	struct folio *folio = tide_store_may_grow() ? tide_store_alloc(store) : NULL;
	bool recycled;

	if (folio)
		return folio;
	mutex_lock(&store->mutex);
	recycled = tide_store_recycle(store);
	mutex_unlock(&store->mutex);
	return recycled ? tide_store_alloc(store) : NULL;
}

/**
 * tide_store_cancel() - give a prepared page back
 * @store: the store
 * @folio: from tide_store_prepare()
 */
void tide_store_cancel(struct tide_store *store, struct folio *folio)
{
	tide_store_uncharge(store);
	tide_note_free(folio);
	folio_put(folio);
}

/* Puts a page's note behind all others; the folio is locked, so that it stays. */
static void tide_store_remember(struct tide_store *store, struct tide_note *note)
{
	spin_lock_irq(&store->lock);
	list_add_tail(&note->order, &store->order);
	spin_unlock_irq(&store->lock);
}

/* A lender that cheats: alters a page, or keeps an older one in its place. */
static void tide_cheat(struct tide_store *store, struct tide_store_file *file,
		       pgoff_t index, struct folio *folio)
{
	struct folio *old = tide_find_folio(file->inode->i_mapping, index);
	struct tide_note *note = folio->private, *old_note;

	if (tide_cheats(store->borrower, "alter")) {
		u8 *byte = kmap_local_folio(folio, index % PAGE_SIZE);

		*byte ^= 1;
		kunmap_local(byte);
	}
	if (!old)
		return;
	old_note = old->private;
	if (tide_cheats(store->borrower, "replay") && old_note) {
		copy_highpage(folio_page(folio, 0), folio_page(old, 0));
		memcpy(note->tag, old_note->tag, TIDE_TAG_SIZE);
	}
	folio_put(old);
}

/* A lender that cheats: sends a neighbour instead, with the neighbour's tag. */
static struct folio *tide_cheat_swap(struct tide_store_file *file, pgoff_t index,
				     struct folio *folio, u8 *tag)
{
	struct folio *other = tide_find_folio(file->inode->i_mapping, index ^ 1);
	struct tide_note *note = other ? READ_ONCE(other->private) : NULL;

	if (!note) {
		if (other)
			folio_put(other);
		return folio;
	}
	memcpy(tag, note->tag, TIDE_TAG_SIZE);
	folio_put(folio);
	return other;
}

/**
 * tide_store_add() - keep a page
 * @store: the store
 * @item: which page this is, and its tag
 * @folio: from tide_store_prepare(), with the contents; the store takes it over
 *
 * Context: process.
 * Return: 0 or a negative errno, and then the page is not here.
 */
int tide_store_add(struct tide_store *store, const struct tide_put_item *item,
		   struct folio *folio)
{
	u64 id = le64_to_cpu(item->id.file), index = le64_to_cpu(item->id.index);
	struct tide_note *note = folio->private;
	struct tide_store_file *file;
	int err = -ENOMEM;

	note->version = le64_to_cpu(item->id.version);
	memcpy(note->tag, item->tag, TIDE_TAG_SIZE);

	mutex_lock(&store->mutex);
	file = index < TIDE_INDEX_END ? tide_store_open(store, id) : NULL;
	if (!file)
		goto out;
	if (tide_broken(LENDER))
		tide_cheat(store, file, index, folio);
	tide_store_remove(file, index, index);	/* an older version */
	folio_mark_uptodate(folio);
	/* __GFP_WRITE: not a refault, so that it stays inactive */
	err = filemap_add_folio(file->inode->i_mapping, folio, index,
				TIDE_STORE_GFP | __GFP_WRITE);
	if (err)
		goto out;
	note->file = file;
	note->index = index;
	tide_store_remember(store, note);
	folio_unlock(folio);
	atomic64_inc(&store->borrower->stats.puts);
out:
	mutex_unlock(&store->mutex);
	if (err)
		tide_store_cancel(store, folio);
	else
		folio_put(folio);
	return err;
}

/**
 * tide_store_get() - look a page up
 * @store: the store
 * @id: the remote file
 * @index: page index
 * @version: the version that is wanted
 * @tag: set to what came with it
 *
 * Context: process.
 * Return: the folio with a reference taken, or NULL.
 */
struct folio *tide_store_get(struct tide_store *store, u64 id, pgoff_t index,
			     u64 version, u8 *tag)
{
	struct tide_store_file *file;
	struct tide_note *note;
	struct folio *folio;

	mutex_lock(&store->mutex);
	file = tide_store_find(store, id);
	folio = file ? tide_find_folio(file->inode->i_mapping, index) : NULL;
	note = folio ? READ_ONCE(folio->private) : NULL;
	if (note && note->version == version) {
		memcpy(tag, note->tag, TIDE_TAG_SIZE);
		if (tide_cheats(store->borrower, "swap"))
			folio = tide_cheat_swap(file, index, folio, tag);
	} else if (folio) {
		folio_put(folio);
		folio = NULL;
	}
	mutex_unlock(&store->mutex);
	return folio;
}

/**
 * tide_store_forget() - drop pages that the borrower has no use for
 * @store: the store
 * @id: the remote file
 * @first: first page index
 * @last: last page index, inclusive
 * @before: only versions below this one, checked for single pages
 *
 * Context: process.
 */
void tide_store_forget(struct tide_store *store, u64 id, pgoff_t first,
		       pgoff_t last, u64 before)
{
	struct tide_store_file *file;
	struct folio *folio;

	if (tide_cheats(store->borrower, "replay"))
		return;
	mutex_lock(&store->mutex);
	file = tide_store_find(store, id);
	if (!file)
		goto out;
	if (first == last) {
		folio = tide_find_folio(file->inode->i_mapping, first);
		if (!folio)
			goto out;
		if (tide_folio_version(folio) >= before) {
			folio_put(folio);
			goto out;
		}
		folio_put(folio);
	}
	tide_store_remove(file, first, last);
	if (!file->inode->i_mapping->nrpages)
		tide_store_close(file);
out:
	mutex_unlock(&store->mutex);
}

/**
 * tide_store_trim() - drop the oldest pages
 * @store: the store
 * @pages: how many may stay
 *
 * Context: process.
 */
void tide_store_trim(struct tide_store *store, u64 pages)
{
	bool more = true;

	while (more && tide_store_pages(store) > pages) {
		mutex_lock(&store->mutex);
		more = tide_store_recycle(store);
		mutex_unlock(&store->mutex);
		cond_resched();
	}
}

/* ------------------------------------------------------------------ */
/* life of a store						       */
/* ------------------------------------------------------------------ */

/**
 * tide_store_create() - an empty store
 * @borrower: whose
 * @bytes: most that it may hold
 *
 * Return: the store or NULL.
 */
struct tide_store *tide_store_create(struct tide_borrower *borrower, u64 bytes)
{
	struct tide_store *store = kvzalloc(sizeof(*store), GFP_KERNEL);

	if (!store)
		return NULL;
	store->borrower = borrower;
	mutex_init(&store->mutex);
	spin_lock_init(&store->lock);
	INIT_LIST_HEAD(&store->order);
	hash_init(store->files);
	store->limit = bytes >> PAGE_SHIFT;
	return store;
}

/**
 * tide_store_resize() - let a store hold more or less
 * @store: the store
 * @bytes: most that it may hold from now on
 *
 * Context: process.
 */
void tide_store_resize(struct tide_store *store, u64 bytes)
{
	WRITE_ONCE(store->limit, bytes >> PAGE_SHIFT);
	tide_store_trim(store, store->limit);
}

/**
 * tide_store_destroy() - give all memory back
 * @store: nobody uses it any more
 *
 * Context: process.
 */
void tide_store_destroy(struct tide_store *store)
{
	struct tide_store_file *file;
	struct hlist_node *next;
	int bucket;

	hash_for_each_safe(store->files, bucket, next, file, hash) {
		tide_store_close(file);
		cond_resched();
	}
	cancel_delayed_work_sync(&store->borrower->notify);
	kvfree(store);
}
