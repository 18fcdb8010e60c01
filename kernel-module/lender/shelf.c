// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender's shelf (Puma, section 3.4.2). A remote page is a clean folio of
 * the session's private inode, the lowest number that was free as its index. It
 * sits at the cold end of the inactive file list, `free` counts it as available,
 * and giveback.c gives the oldest away before reclaim turns to anything of the
 * guest's own. Storing never enters reclaim: when memory is short, the oldest
 * page of the same borrower makes room (invariant 7).
 *
 * folio->private points to the page's note (notes.c). All that is remembered is
 * counted with the page (TIDE_NOTE_COST).
 *
 * The shelf's mutex orders adding, recycling and forgetting; the kernel and the
 * shrinker may take a page at any time, unless somebody has a reference.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/highmem.h>
#include <linux/idr.h>
#include <linux/math64.h>
#include <linux/migrate.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#include "base/broken.h"
#include "base/compat.h"
#include "base/stats.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/giveback.h"
#include "lender/notes.h"
#include "lender/shelf.h"
#include "lender/shelf_pages.h"
#include "uapi/wire.h"

#define TIDE_FS_MAGIC		0x54494445	/* "TIDE" */
#define TIDE_FREE_FLOOR_SHIFT	6		/* 1/64 of memory stays free */
#define TIDE_TELL_DELAY		(HZ / 20)
#define TIDE_FORGET_PATIENCE	64		/* pages in a row that are named in vain */
#define TIDE_NOTE_GFP		(__GFP_NOWARN | __GFP_NOMEMALLOC)
#define TIDE_SHELF_GFP		(__GFP_HIGHMEM | __GFP_MOVABLE | __GFP_HARDWALL | \
				 TIDE_NOTE_GFP)

u64 tide_lend_bytes;
u64 tide_reserve_bytes = 64 << 20;
static struct vfsmount *tide_mnt;

/* ------------------------------------------------------------------ */
/* the private file system					       */
/* ------------------------------------------------------------------ */

#ifdef CONFIG_MIGRATION
/* Compaction moves a folio that nobody else refers to: its note goes with it. */
static int tide_migrate_folio(struct address_space *mapping, struct folio *dst,
			      struct folio *src, enum migrate_mode mode)
{
	struct tide_shelf *shelf = mapping->host->i_private;
	struct tide_note *note = src->private;
	int ret = migrate_folio(mapping, dst, src, mode);

	if (!ret) {
		src->private = NULL;
		dst->private = note;
		tide_note_moved(&shelf->notes, note, dst);
	}
	return ret;
}
#endif

const struct address_space_operations tide_shelf_aops = {
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

static struct inode *tide_shelf_inode(struct tide_shelf *shelf)
{
	struct inode *inode = alloc_anon_inode(tide_mnt->mnt_sb);

	if (IS_ERR(inode))
		return NULL;
	inode->i_private = shelf;
	inode->i_mapping->a_ops = &tide_shelf_aops;
	mapping_set_gfp_mask(inode->i_mapping, GFP_HIGHUSER_MOVABLE);
	mapping_set_no_writeback_tags(inode->i_mapping);	/* see tide_folio_rotate() */
	i_size_write(inode, MAX_LFS_FILESIZE);
	return inode;
}

/**
 * tide_shelf_fits() - how many pages may be lent
 * @bytes: of so much memory, what is remembered of them included
 */
u64 tide_shelf_fits(u64 bytes)
{
	return div_u64(bytes, PAGE_SIZE + TIDE_NOTE_COST);
}

/* ------------------------------------------------------------------ */
/* pages that go						       */
/* ------------------------------------------------------------------ */

static void tide_shelf_uncharge(struct tide_shelf *shelf)
{
	atomic64_dec(&shelf->pages);
	atomic64_dec(&tide_lent_pages);
}

/**
 * tide_shelf_deleted() - a page of a shelf leaves the page cache
 * @mapping: of the shelf
 * @folio: still in it; frozen when the kernel reclaims it
 *
 * Context: tracepoint, i_pages lock held, interrupts off.
 */
void tide_shelf_deleted(struct address_space *mapping, struct folio *folio)
{
	struct tide_shelf *shelf = mapping->host->i_private;
	struct tide_note *note = folio->private;
	bool reclaimed = !folio_ref_count(folio);
	unsigned int gone;

	folio->private = NULL;
	if (reclaimed)
		atomic64_inc(&shelf->borrower->stats.reclaimed);
	gone = tide_note_drop(&shelf->notes, note, reclaimed);
	if (gone == 1)
		tide_tell(shelf->borrower, TIDE_TELL_DELAY);
	if (gone == 2 * TIDE_NOTICE_MAX)
		tide_tell(shelf->borrower, 0);
	ida_free(&shelf->slots, folio->index);
	tide_shelf_uncharge(shelf);
}

/**
 * tide_shelf_notes() - what is known of a borrower's pages
 * @shelf: the shelf
 */
struct tide_notes *tide_shelf_notes(struct tide_shelf *shelf)
{
	return &shelf->notes;
}

/**
 * tide_shelf_trimming() - do many pages go just now?
 * @shelf: the shelf
 *
 * When they have gone tide_notify() is called.
 */
bool tide_shelf_trimming(struct tide_shelf *shelf)
{
	return READ_ONCE(shelf->trimming);
}

/* Takes a page away that the caller holds. The mutex is held: the slot stays its own. */
static void tide_shelf_remove(struct tide_shelf *shelf, struct folio *folio)
{
	loff_t at = (loff_t)folio->index << PAGE_SHIFT;

	truncate_inode_pages_range(shelf->inode->i_mapping, at, at + PAGE_SIZE - 1);
	folio_put(folio);
}

/* Drops the oldest page; false when there is none. Mutex held. */
static bool tide_shelf_recycle(struct tide_shelf *shelf)
{
	struct folio *folio = tide_notes_recycle(&shelf->notes);

	if (!folio)
		return false;
	tide_shelf_remove(shelf, folio);
	atomic64_inc(&shelf->borrower->stats.recycled);
	return true;
}

/* The next page of a range: dropped if it is older than a version, else passed over. Mutex held. */
static bool tide_shelf_drop(struct tide_shelf *shelf, struct tide_range *range, bool *dropped)
{
	struct folio *folio;
	bool found = tide_notes_step(&shelf->notes, &range->at, range->last, range->before,
				     &folio);

	*dropped = folio;
	if (folio)
		tide_shelf_remove(shelf, folio);
	return found;
}

/* ------------------------------------------------------------------ */
/* pages that come						       */
/* ------------------------------------------------------------------ */

/* Counts a page before it is there, so that batches cannot overshoot. */
static bool tide_shelf_charge(struct tide_shelf *shelf)
{
	u64 lent = atomic64_inc_return(&tide_lent_pages);
	u64 pages = atomic64_inc_return(&shelf->pages);

	if (pages <= READ_ONCE(shelf->limit) &&
	    lent <= tide_shelf_fits(READ_ONCE(tide_lend_bytes)))
		return true;
	tide_shelf_uncharge(shelf);
	return false;
}

/* May one page more be taken without harm to the guest? */
static bool tide_shelf_may_grow(void)
{
	u64 available = si_mem_available();	/* counts the lent pages */

	return available > tide_shelf_lent() +
			   (READ_ONCE(tide_reserve_bytes) >> PAGE_SHIFT) &&
	       global_zone_page_state(NR_FREE_PAGES) >
			totalram_pages() >> TIDE_FREE_FLOOR_SHIFT;
}

/*
 * All that may be lent is, and this borrower may have more of it: those who are gone
 * make room, before those who are here do.
 */
static bool tide_shelf_displace(struct tide_shelf *shelf)
{
	return tide_shelf_pages(shelf) < READ_ONCE(shelf->limit) &&
	       tide_shelf_lent() >= tide_shelf_fits(READ_ONCE(tide_lend_bytes)) &&
	       tide_give_room();
}

static struct tide_note *tide_shelf_note(struct tide_shelf *shelf)
{
	struct tide_note *note = tide_note_alloc(TIDE_NOTE_GFP);

	if (!note)
		return NULL;
	note->slot = ida_alloc(&shelf->slots, TIDE_NOTE_GFP);
	if (note->slot >= 0)
		return note;
	tide_note_free(note);
	return NULL;
}

static struct folio *tide_shelf_alloc(struct tide_shelf *shelf)
{
	struct folio *folio;

	if (!tide_shelf_charge(shelf))
		return NULL;
	folio = tide_alloc_folio(TIDE_SHELF_GFP);
	if (!folio)
		goto uncharge;
	folio->private = tide_shelf_note(shelf);
	if (folio->private)
		return folio;
	folio_put(folio);
uncharge:
	tide_shelf_uncharge(shelf);
	return NULL;
}

/**
 * tide_shelf_prepare() - a page to receive into
 * @shelf: the shelf
 *
 * Never enters reclaim and takes nothing of the reserve: when memory or the
 * quota is short, the oldest page here is dropped first.
 *
 * Context: process.
 * Return: a folio for tide_shelf_add() or tide_shelf_cancel(), or NULL when
 * nothing can be spared.
 */
struct folio *tide_shelf_prepare(struct tide_shelf *shelf)
{
	struct folio *folio = tide_shelf_may_grow() ? tide_shelf_alloc(shelf) : NULL;
	bool recycled;

	if (!folio && tide_shelf_displace(shelf))
		folio = tide_shelf_alloc(shelf);
	if (folio)
		return folio;
	mutex_lock(&shelf->mutex);
	recycled = tide_shelf_recycle(shelf);
	mutex_unlock(&shelf->mutex);
	return recycled ? tide_shelf_alloc(shelf) : NULL;
}

/**
 * tide_shelf_cancel() - give a prepared page back
 * @shelf: the shelf
 * @folio: from tide_shelf_prepare()
 */
void tide_shelf_cancel(struct tide_shelf *shelf, struct folio *folio)
{
	struct tide_note *note = folio->private;

	folio->private = NULL;
	ida_free(&shelf->slots, note->slot);
	tide_note_free(note);
	folio_put(folio);
	tide_shelf_uncharge(shelf);
}

/* A lender that cheats: alters a page, or keeps an older one in its place. */
static void tide_cheat(struct tide_shelf *shelf, struct tide_note *note,
		       struct folio *folio)
{
	struct folio *old;
	u8 tag[TIDE_TAG_SIZE];

	if (tide_cheats(shelf->borrower, "alter")) {
		u8 *byte = kmap_local_folio(folio, note->key.index % PAGE_SIZE);

		*byte ^= 1;
		kunmap_local(byte);
	}
	old = tide_notes_any(&shelf->notes, note->key.file, note->key.index, tag);
	if (!old)
		return;
	if (tide_cheats(shelf->borrower, "replay")) {
		copy_highpage(folio_page(folio, 0), folio_page(old, 0));
		memcpy(note->tag, tag, TIDE_TAG_SIZE);
	}
	folio_put(old);
}

/* A lender that cheats: sends a neighbour instead, with the neighbour's tag. */
static struct folio *tide_cheat_swap(struct tide_shelf *shelf, const struct tide_key *key,
				     struct folio *folio, u8 *tag)
{
	struct folio *other;
	u8 others[TIDE_TAG_SIZE];

	other = tide_notes_any(&shelf->notes, key->file, key->index ^ 1, others);
	if (!other)
		return folio;
	memcpy(tag, others, TIDE_TAG_SIZE);
	folio_put(folio);
	return other;
}

/* An older version goes when a page comes; mutex held. */
static void tide_shelf_replace(struct tide_shelf *shelf, const struct tide_key *key)
{
	struct tide_range range = {
		.at.file = key->file, .at.index = key->index,
		.last = key->index, .before = U64_MAX,
	};
	bool dropped;

	while (tide_shelf_drop(shelf, &range, &dropped))
		;
}

static int tide_shelf_insert(struct tide_shelf *shelf, struct tide_note *note,
			     struct folio *folio)
{
	int err;

	tide_shelf_replace(shelf, &note->key);
	folio_mark_uptodate(folio);
	/* __GFP_WRITE: not a refault, so that it stays inactive */
	err = filemap_add_folio(shelf->inode->i_mapping, folio, note->slot,
				TIDE_SHELF_GFP | __GFP_WRITE);
	if (err)
		return err;
	tide_note_keep(&shelf->notes, note, folio);
	folio_unlock(folio);
	return 0;
}

/**
 * tide_shelf_add() - keep a page
 * @shelf: the shelf
 * @item: which page this is, and its tag
 * @folio: from tide_shelf_prepare(), with the contents
 *
 * Context: process.
 * Return: 0, and tide_shelf_settle() is to follow, or a negative errno, and then
 * the page is not here.
 */
int tide_shelf_add(struct tide_shelf *shelf, const struct tide_put_item *item,
		   struct folio *folio)
{
	struct tide_note *note = folio->private;
	int err = -EINVAL;

	note->key = (struct tide_key) {
		.file = le64_to_cpu(item->id.file),
		.index = le64_to_cpu(item->id.index),
		.version = le64_to_cpu(item->id.version),
	};
	memcpy(note->tag, item->tag, TIDE_TAG_SIZE);
	if (note->key.version && note->key.version != U64_MAX) {	/* nobody asks for these */
		mutex_lock(&shelf->mutex);
		if (tide_broken(LENDER))
			tide_cheat(shelf, note, folio);
		err = tide_shelf_insert(shelf, note, folio);
		mutex_unlock(&shelf->mutex);
	}
	if (err)
		tide_shelf_cancel(shelf, folio);
	else
		atomic64_inc(&shelf->borrower->stats.puts);
	return err;
}

/*
 * To the cold end of its list, as the kernel moves a page there when its reclaim has
 * waited until it was written. To deactivate it is not enough on 7.2: there a
 * multi-generational LRU leaves a page of its oldest generation where it is, behind all
 * that the guest has read itself.
 */
static void tide_folio_rotate(struct folio *folio)
{
	if (!folio_trylock(folio))
		return;
	folio_start_writeback(folio);
	folio_unlock(folio);
	folio_set_reclaim(folio);
	folio_end_writeback(folio);
}

/**
 * tide_shelf_settle() - leave pages that were added to themselves
 * @shelf: the shelf
 * @folio: pages that were added; the references are given back
 * @count: how many, at most TIDE_PUT_MAX
 *
 * They go to the cold end of the inactive list, before all that the guest has
 * read itself. A page is on that list some pages after it was added; what has
 * been overtaken meanwhile is of no account.
 *
 * Context: process, who adds.
 */
void tide_shelf_settle(struct tide_shelf *shelf, struct folio **folio, unsigned int count)
{
	unsigned int i;

	if (count)		/* flushes what is on its way to the list */
		tide_give_cool(shelf, &folio[0]->index, 1);
	for (i = 0; i < count; i++) {
		tide_folio_rotate(folio[i]);
		folio_put(folio[i]);
	}
}

/**
 * tide_shelf_get() - look a page up
 * @shelf: the shelf
 * @id: the remote file
 * @index: page index
 * @version: the version that is wanted
 * @tag: set to what came with it
 *
 * Context: process.
 * Return: the folio with a reference taken, or NULL.
 */
struct folio *tide_shelf_get(struct tide_shelf *shelf, u64 id, pgoff_t index,
			     u64 version, u8 *tag)
{
	struct tide_key key = { .file = id, .index = index, .version = version };
	struct folio *folio = tide_notes_find(&shelf->notes, &key, tag);

	if (folio && tide_cheats(shelf->borrower, "swap"))
		folio = tide_cheat_swap(shelf, &key, folio, tag);
	return folio;
}

/**
 * tide_shelf_forget() - drop pages that the borrower has no use for
 * @shelf: the shelf
 * @range: which pages; moved behind those that were looked at
 * @most: how many may go at once; lessened by those that went
 *
 * A hint: behind TIDE_FORGET_PATIENCE pages in a row that stay, all stay, and are
 * recycled in their turn.
 *
 * Context: process.
 * Return: whether some are left.
 */
bool tide_shelf_forget(struct tide_shelf *shelf, struct tide_range *range, unsigned int *most)
{
	bool more = range->at.index <= range->last && !tide_cheats(shelf->borrower, "replay");
	unsigned int patience = TIDE_FORGET_PATIENCE;
	bool dropped;

	while (more && patience && *most) {
		mutex_lock(&shelf->mutex);
		more = tide_shelf_drop(shelf, range, &dropped);
		mutex_unlock(&shelf->mutex);
		patience = dropped ? TIDE_FORGET_PATIENCE : patience - 1;
		*most -= dropped;
		cond_resched();
	}
	return more && patience;
}

/**
 * tide_shelf_trim() - drop the oldest pages
 * @shelf: the shelf
 * @pages: how many may stay
 *
 * Context: process.
 */
void tide_shelf_trim(struct tide_shelf *shelf, u64 pages)
{
	bool more = true;

	WRITE_ONCE(shelf->trimming, true);
	while (more && tide_shelf_pages(shelf) > pages) {
		mutex_lock(&shelf->mutex);
		more = tide_shelf_recycle(shelf);
		mutex_unlock(&shelf->mutex);
		cond_resched();
	}
	WRITE_ONCE(shelf->trimming, false);
	if (tide_notes_untold(&shelf->notes))
		tide_tell(shelf->borrower, 0);
}

/* ------------------------------------------------------------------ */
/* life of a shelf						       */
/* ------------------------------------------------------------------ */

/**
 * tide_shelf_create() - an empty shelf
 * @borrower: whose
 * @bytes: most that it may take
 *
 * Return: the shelf or NULL.
 */
struct tide_shelf *tide_shelf_create(struct tide_borrower *borrower, u64 bytes)
{
	struct tide_shelf *shelf = kzalloc(sizeof(*shelf), GFP_KERNEL);

	if (!shelf)
		return NULL;
	shelf->inode = tide_shelf_inode(shelf);
	if (!shelf->inode) {
		kfree(shelf);
		return NULL;
	}
	shelf->borrower = borrower;
	mutex_init(&shelf->mutex);
	ida_init(&shelf->slots);
	tide_notes_begin(&shelf->notes);
	shelf->limit = tide_shelf_fits(bytes);
	tide_give_add(shelf);
	return shelf;
}

/**
 * tide_shelf_resize() - let a shelf take more or less
 * @shelf: the shelf
 * @bytes: most that it may take from now on
 *
 * Context: process.
 */
void tide_shelf_resize(struct tide_shelf *shelf, u64 bytes)
{
	WRITE_ONCE(shelf->limit, tide_shelf_fits(bytes));
	tide_notes_limit(&shelf->notes, shelf->limit);
	tide_shelf_trim(shelf, shelf->limit);
}

/**
 * tide_shelf_destroy() - give all memory back
 * @shelf: nobody uses it any more
 *
 * Context: process.
 */
void tide_shelf_destroy(struct tide_shelf *shelf)
{
	tide_give_remove(shelf);
	iput(shelf->inode);	/* drops its pages */
	cancel_delayed_work_sync(&shelf->borrower->notify);
	tide_notes_end(&shelf->notes);
	ida_destroy(&shelf->slots);
	kfree(shelf);
}

static int tide_shelf_mount(void)
{
	tide_mnt = kern_mount(&tide_fs);
	return PTR_ERR_OR_ZERO(tide_mnt);
}

int tide_shelf_init(void)
{
	int err;

	/* a node of the page cache has XA_CHUNK_SIZE pages; a slot is a bit */
	BUILD_BUG_ON(sizeof(struct tide_note) + sizeof(struct xa_node) / XA_CHUNK_SIZE + 1 >
		     TIDE_NOTE_COST);
	err = tide_notes_init();
	if (err)
		return err;
	err = tide_shelf_mount();
	if (err)
		goto notes;
	err = tide_give_init();
	if (err)
		goto unmount;
	return 0;
unmount:
	kern_unmount(tide_mnt);
notes:
	tide_notes_exit();
	return err;
}

void tide_shelf_exit(void)
{
	tide_give_exit();
	kern_unmount(tide_mnt);
	if (atomic64_read(&tide_lent_pages))
		tide_warn("%lld pages are still lent\n",
			  (s64)atomic64_read(&tide_lent_pages));
	tide_notes_exit();
}
