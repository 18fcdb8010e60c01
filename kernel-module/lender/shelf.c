// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender's store (Puma, section 3.4.2). A remote page is a clean folio of
 * the session's private inode, the lowest number that was free as its index. It
 * sits at the cold end of the inactive file list, `free` counts it as available,
 * and a shrinker gives the oldest away before reclaim turns to anything of the
 * guest's own. Storing never enters reclaim: when memory is short, the oldest
 * page of the same borrower makes room (invariant 7).
 *
 * folio->private points to a note of the page, which is in a tree by what the
 * borrower calls the page and in a list in the order of arrival. A note that is
 * in the tree has a page: the page leaves the page cache only after its note has
 * left the tree. The note of a page that was taken away stays until the borrower
 * has been told. All that is remembered is counted with the page (TIDE_NOTE_COST).
 *
 * Versions come in order, and the oldest page is the first to be taken away. So for
 * notes of pages that are older than all that are here one version will do: nothing
 * older is left. When there are many notes, of a borrower that does not listen or
 * that loses much at once, only the latest are kept.
 *
 * The store's mutex orders adding, recycling and forgetting; the kernel and the
 * shrinker may take a page at any time, unless somebody has a reference.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/highmem.h>
#include <linux/idr.h>
#include <linux/list.h>
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
#include "lender/listen.h"
#include "lender/shelf.h"
#include "uapi/wire.h"

#define TIDE_FS_MAGIC		0x54494445	/* "TIDE" */
#define TIDE_FREE_FLOOR_SHIFT	6		/* 1/64 of memory stays free */
#define TIDE_GIVE_SHIFT		8		/* reclaim gets 1/256 of memory at once */
#define TIDE_GIVE_BATCH		32
#define TIDE_TELL_DELAY		(HZ / 20)
#define TIDE_NOTES_SHIFT	6		/* notes kept: an age of the borrower's, */
#define TIDE_NOTES_LEAST	1024		/* and no less than this */
#define TIDE_NOTE_GFP		(__GFP_NOWARN | __GFP_NOMEMALLOC)
#define TIDE_STORE_GFP		(__GFP_HIGHMEM | __GFP_MOVABLE | __GFP_HARDWALL | \
				 TIDE_NOTE_GFP)

u64 tide_lend_bytes;
u64 tide_reserve_bytes = 64 << 20;
static atomic64_t tide_lent_pages = ATOMIC64_INIT(0);
static struct vfsmount *tide_mnt;
static struct kmem_cache *tide_notes;
static struct shrinker *tide_giver;
static LIST_HEAD(tide_stores);
static DEFINE_MUTEX(tide_stores_mutex);	/* the list; the shrinker only tries */

/* What a borrower calls a page. */
struct tide_key {
	u64 file, index, version;
};

/**
 * struct tide_note - what is known of a page that is, or was, here
 * @node: in the store's tree, while the page is here
 * @order: in the store's list of pages, or of those that are gone
 * @folio: the page
 * @key: which one it is
 * @tag: what proves its contents to the borrower
 * @slot: the folio's index
 * @recycled: it is taken away, and the borrower is to be told
 */
struct tide_note {
	struct rb_node node;
	struct list_head order;
	struct folio *folio;
	struct tide_key key;
	u8 tag[TIDE_TAG_SIZE];
	int slot;
	bool recycled;
};

/**
 * struct tide_store - the pages that one borrower has here
 * @list: in tide_stores
 * @borrower: whose
 * @inode: what they are pages of
 * @mutex: adding pages, and taking them away on purpose
 * @slots: the indices that are taken
 * @pages: how many are here
 * @limit: most that it may have
 * @lock: guards what follows, taken with interrupts off
 * @tree: notes of all pages by their keys
 * @order: the same, the oldest first, but for those in
 * @late: older still: they could not go when it was their turn; likewise in order
 * @newest: version that was ever here
 * @gone: notes of which the borrower is to be told
 * @gone_count: how many
 * @gone_most: so many, and in their place it is told a version
 * @thinned: how many such notes there have been
 * @trimming: many pages go: the borrower is told afterwards
 */
struct tide_store {
	struct list_head list;
	struct tide_borrower *borrower;
	struct inode *inode;
	struct mutex mutex;	/* outside the mapping's locks */
	struct ida slots;
	atomic64_t pages;
	u64 limit;
	spinlock_t lock;	/* a leaf, inside i_pages */
	struct rb_root tree;
	struct list_head order, late, gone;
	u64 newest;
	unsigned int gone_count;
	u64 gone_most, thinned;
	bool trimming;
};

/* ------------------------------------------------------------------ */
/* notes							       */
/* ------------------------------------------------------------------ */

static bool tide_key_less(const struct tide_key *a, const struct tide_key *b)
{
	if (a->file != b->file)
		return a->file < b->file;
	if (a->index != b->index)
		return a->index < b->index;
	return a->version < b->version;
}

/* The first note that is not before a key; the lock is held. */
static struct tide_note *tide_note_from(struct tide_store *store,
					const struct tide_key *key)
{
	struct rb_node *node = store->tree.rb_node;
	struct tide_note *found = NULL;

	while (node) {
		struct tide_note *note = rb_entry(node, struct tide_note, node);

		if (tide_key_less(&note->key, key)) {
			node = node->rb_right;
		} else {
			found = note;
			node = node->rb_left;
		}
	}
	return found;
}

static bool tide_note_less(struct rb_node *a, const struct rb_node *b)
{
	return tide_key_less(&rb_entry(a, struct tide_note, node)->key,
			     &rb_entry(b, struct tide_note, node)->key);
}

/* Its page is locked, so that both stay. */
static void tide_note_keep(struct tide_store *store, struct tide_note *note,
			   struct folio *folio)
{
	note->folio = folio;
	spin_lock_irq(&store->lock);
	rb_add(&note->node, &store->tree, tide_note_less);
	list_add_tail(&note->order, &store->order);
	store->newest = max(store->newest, note->key.version);
	spin_unlock_irq(&store->lock);
}

/*
 * The page of a note with a reference taken; NULL while the kernel is about to
 * reclaim it. The lock is held.
 */
static struct folio *tide_note_hold(struct tide_note *note)
{
	return folio_try_get(note->folio) ? note->folio : NULL;
}

/* ------------------------------------------------------------------ */
/* the private file system					       */
/* ------------------------------------------------------------------ */

#ifdef CONFIG_MIGRATION
/* Compaction moves a folio that nobody else refers to: its note goes with it. */
static int tide_migrate_folio(struct address_space *mapping, struct folio *dst,
			      struct folio *src, enum migrate_mode mode)
{
	struct tide_store *store = mapping->host->i_private;
	struct tide_note *note = src->private;
	int ret = migrate_folio(mapping, dst, src, mode);

	if (!ret) {
		src->private = NULL;
		dst->private = note;
		spin_lock_irq(&store->lock);
		note->folio = dst;
		spin_unlock_irq(&store->lock);
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

static struct inode *tide_store_inode(struct tide_store *store)
{
	struct inode *inode = alloc_anon_inode(tide_mnt->mnt_sb);

	if (IS_ERR(inode))
		return NULL;
	inode->i_private = store;
	inode->i_mapping->a_ops = &tide_store_aops;
	mapping_set_gfp_mask(inode->i_mapping, GFP_HIGHUSER_MOVABLE);
	mapping_set_no_writeback_tags(inode->i_mapping);	/* see tide_folio_rotate() */
	i_size_write(inode, MAX_LFS_FILESIZE);
	return inode;
}

u64 tide_store_lent(void)
{
	return atomic64_read(&tide_lent_pages);
}

u64 tide_store_pages(struct tide_store *store)
{
	return atomic64_read(&store->pages);
}

/**
 * tide_store_fits() - how many pages may be lent
 * @bytes: of so much memory, what is remembered of them included
 */
u64 tide_store_fits(u64 bytes)
{
	return div_u64(bytes, PAGE_SIZE + TIDE_NOTE_COST);
}

/* ------------------------------------------------------------------ */
/* pages that go						       */
/* ------------------------------------------------------------------ */

static void tide_store_uncharge(struct tide_store *store)
{
	atomic64_dec(&store->pages);
	atomic64_dec(&tide_lent_pages);
}

static struct tide_note *tide_note_first(struct list_head *list)
{
	return list_first_entry_or_null(list, struct tide_note, order);
}

/* No page that is here, or comes, is older. The lock is held. */
static u64 tide_store_lowest(struct tide_store *store)
{
	struct tide_note *note = tide_note_first(&store->late) ?: tide_note_first(&store->order);

	return note ? note->key.version : store->newest + 1;
}

/*
 * There is a note more. If these are too many, of the two that wait longest those go
 * that are older than all that is here; others wait once more, unless there are as many
 * as there were ever pages: whoever gives versions as he likes may ask in vain. The
 * lock is held.
 */
static void tide_notes_thin(struct tide_store *store)
{
	u64 lowest = tide_store_lowest(store);
	unsigned int i;

	for (i = 0; i < 2 && store->gone_count > store->gone_most; i++) {
		struct tide_note *note = tide_note_first(&store->gone);

		if (note->key.version >= lowest &&
		    store->gone_count <= store->gone_most << TIDE_NOTES_SHIFT) {
			list_move_tail(&note->order, &store->gone);
			continue;
		}
		list_del(&note->order);
		kmem_cache_free(tide_notes, note);
		store->gone_count--;
		store->thinned++;
	}
}

/* Its page is gone; true when the borrower is to be told, and the note stays. */
static bool tide_note_drop(struct tide_store *store, struct tide_note *note,
			   bool reclaimed)
{
	unsigned int gone = 0;
	unsigned long flags;

	spin_lock_irqsave(&store->lock, flags);
	rb_erase(&note->node, &store->tree);
	if (reclaimed || note->recycled) {
		list_move_tail(&note->order, &store->gone);
		gone = ++store->gone_count;
		tide_notes_thin(store);
	} else {
		list_del(&note->order);
	}
	spin_unlock_irqrestore(&store->lock, flags);
	if (gone == 1)
		tide_tell(store->borrower, TIDE_TELL_DELAY);
	if (gone == 2 * TIDE_NOTICE_MAX)
		tide_tell(store->borrower, 0);
	return gone;
}

/**
 * tide_store_deleted() - a page of a store leaves the page cache
 * @mapping: of the store
 * @folio: still in it; frozen when the kernel reclaims it
 *
 * Context: tracepoint, i_pages lock held, interrupts off.
 */
void tide_store_deleted(struct address_space *mapping, struct folio *folio)
{
	struct tide_store *store = mapping->host->i_private;
	struct tide_note *note = folio->private;
	bool reclaimed = !folio_ref_count(folio);

	folio->private = NULL;
	if (reclaimed)
		atomic64_inc(&store->borrower->stats.reclaimed);
	if (!tide_note_drop(store, note, reclaimed))
		kmem_cache_free(tide_notes, note);
	ida_free(&store->slots, folio->index);
	tide_store_uncharge(store);
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
	struct tide_note *note, *next;
	unsigned int n = 0;
	LIST_HEAD(told);

	spin_lock_irq(&store->lock);
	list_for_each_entry_safe(note, next, &store->gone, order) {
		if (n == max)
			break;
		id[n++] = (struct tide_page_id) {
			.file = cpu_to_le64(note->key.file),
			.index = cpu_to_le64(note->key.index),
			.version = cpu_to_le64(note->key.version),
		};
		list_move(&note->order, &told);
	}
	store->gone_count -= n;
	spin_unlock_irq(&store->lock);
	list_for_each_entry_safe(note, next, &told, order)
		kmem_cache_free(tide_notes, note);
	return n;
}

/**
 * tide_store_before() - a version that the borrower is to be told
 * @store: the store
 * @told: how many notes the last one stood for; set to what this one does
 *
 * It is true of a borrower that puts pages in the order of their versions.
 *
 * Return: nothing older is here; 0 when every page that has gone since has a note.
 */
u64 tide_store_before(struct tide_store *store, u64 *told)
{
	u64 before = 0;

	spin_lock_irq(&store->lock);
	if (*told != store->thinned)
		before = tide_store_lowest(store);
	*told = store->thinned;
	spin_unlock_irq(&store->lock);
	return before;
}

/**
 * tide_store_untold() - how many pages are gone without the borrower's knowledge
 * @store: the store
 */
unsigned int tide_store_untold(struct tide_store *store)
{
	return READ_ONCE(store->gone_count);
}

/**
 * tide_store_trimming() - do many pages go just now?
 * @store: the store
 *
 * When they have gone tide_notify() is called.
 */
bool tide_store_trimming(struct tide_store *store)
{
	return READ_ONCE(store->trimming);
}

/* Takes a page away that the caller holds. The mutex is held: the slot stays its own. */
static void tide_store_remove(struct tide_store *store, struct folio *folio)
{
	loff_t at = (loff_t)folio->index << PAGE_SHIFT;

	truncate_inode_pages_range(store->inode->i_mapping, at, at + PAGE_SIZE - 1);
	folio_put(folio);
}

/* The first page of a list, held, whose loss the borrower is to be told of. */
static struct folio *tide_notes_recycle(struct list_head *list)
{
	struct folio *folio = NULL;
	struct tide_note *note;

	list_for_each_entry(note, list, order) {
		folio = tide_note_hold(note);
		if (!folio)
			continue;	/* the kernel is just taking it */
		note->recycled = true;
		break;
	}
	return folio;
}

static struct folio *tide_store_oldest(struct tide_store *store)
{
	struct folio *folio;

	spin_lock_irq(&store->lock);
	folio = tide_notes_recycle(&store->late) ?: tide_notes_recycle(&store->order);
	spin_unlock_irq(&store->lock);
	return folio;
}

/* Drops the oldest page; false when there is none. Mutex held. */
static bool tide_store_recycle(struct tide_store *store)
{
	struct folio *folio = tide_store_oldest(store);

	if (!folio)
		return false;
	tide_store_remove(store, folio);
	atomic64_inc(&store->borrower->stats.recycled);
	return true;
}

/*
 * One step of a walk through a file's notes: moves behind the first one that is
 * not before the key, and holds its page when it is older than @before.
 */
static bool tide_store_step(struct tide_store *store, struct tide_key *at,
			    u64 last, u64 before, struct folio **folio)
{
	struct tide_note *note;
	bool found;

	*folio = NULL;
	spin_lock_irq(&store->lock);
	note = tide_note_from(store, at);
	found = note && note->key.file == at->file && note->key.index <= last;
	if (found) {
		*at = note->key;
		at->version++;
		if (note->key.version < before)
			*folio = tide_note_hold(note);
	}
	spin_unlock_irq(&store->lock);
	return found;
}

/* The first page of a file, from one on, that is older than a version: dropped. Mutex held. */
static bool tide_store_drop(struct tide_store *store, struct tide_key *at, u64 last,
			    u64 before)
{
	struct folio *folio;
	bool found = tide_store_step(store, at, last, before, &folio);

	if (folio)
		tide_store_remove(store, folio);
	return found;
}

/* ------------------------------------------------------------------ */
/* given back to the kernel					       */
/* ------------------------------------------------------------------ */

/*
 * Pages of a store by index: those that nobody else holds go, the others move to
 * the cold end of their list. Never waits. Returns how many have gone.
 */
static unsigned long tide_store_cool(struct tide_store *store, const pgoff_t *slot,
				     unsigned int count)
{
	unsigned long gone = 0;
	unsigned int i, first = 0;

	for (i = 1; i <= count; i++) {
		if (i < count && slot[i] == slot[i - 1] + 1)
			continue;
		gone += invalidate_mapping_pages(store->inode->i_mapping, slot[first],
						 slot[i - 1]);
		first = i;
	}
	return gone;
}

/* Indices of the oldest pages. What cannot go now, being sent, is late then. */
static unsigned int tide_store_eldest(struct tide_store *store, pgoff_t *slot,
				      unsigned int max)
{
	struct tide_note *note;
	unsigned int n = 0;

	spin_lock_irq(&store->lock);
	if (list_empty(&store->order))
		list_splice_init(&store->late, &store->order);
	while (n < max && (note = tide_note_first(&store->order))) {
		list_move_tail(&note->order, &store->late);
		slot[n++] = note->slot;
	}
	spin_unlock_irq(&store->lock);
	return n;
}

/* Indices of pages that are late. They keep their places, so that all are in order. */
static unsigned int tide_store_overdue(struct tide_store *store, pgoff_t *slot,
				       unsigned int max)
{
	struct tide_note *note;
	unsigned int n = 0;

	spin_lock_irq(&store->lock);
	list_for_each_entry(note, &store->late, order) {
		if (n == max)
			break;
		slot[n++] = note->slot;
	}
	spin_unlock_irq(&store->lock);
	return n;
}

static unsigned long tide_store_give(struct tide_store *store, unsigned long pages)
{
	unsigned long tried = 0, gone;
	pgoff_t slot[TIDE_GIVE_BATCH];

	gone = tide_store_cool(store, slot, tide_store_overdue(store, slot, TIDE_GIVE_BATCH));
	while (tried < pages) {
		unsigned int n = tide_store_eldest(store, slot,
						   min(pages - tried, TIDE_GIVE_BATCH));

		if (!n)
			break;
		gone += tide_store_cool(store, slot, n);
		tried += n;
	}
	return gone;
}

/*
 * Asked only by reclaim, which is under way because memory is short: lent pages
 * are no cache of this guest that /proc/sys/vm/drop_caches speaks of. No seeks:
 * the kernel takes half of what is counted, whatever its priority, and what
 * it gets in its first round spares it the guest's own pages.
 */
static unsigned long tide_give_count(struct shrinker *shrinker,
				     struct shrink_control *sc)
{
	unsigned long most = totalram_pages() >> TIDE_GIVE_SHIFT;

	if (!(current->flags & PF_MEMALLOC))
		return 0;
	return min_t(u64, tide_store_lent(), 2 * most);
}

/* Those of borrowers that are gone, and may come back, go first. */
static unsigned long tide_give_lingering(unsigned long wanted)
{
	struct tide_store *store;
	unsigned long gone = 0;

	list_for_each_entry(store, &tide_stores, list)
		if (gone < wanted && !READ_ONCE(store->borrower->get))
			gone += tide_store_give(store, min_t(u64, wanted - gone,
							     tide_store_pages(store)));
	return gone;
}

/* Each borrower loses its share. */
static unsigned long tide_give_shares(unsigned long wanted)
{
	u64 lent = tide_store_lent();
	struct tide_store *store;
	unsigned long gone = 0;

	list_for_each_entry(store, &tide_stores, list) {
		u64 pages = tide_store_pages(store);
		u64 share = lent ? mul_u64_u64_div_u64(pages, wanted, lent) + 1 : 0;

		gone += tide_store_give(store, min(share, pages));
	}
	return gone;
}

static unsigned long tide_give_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long gone;

	if (!tide_store_lent() || !mutex_trylock(&tide_stores_mutex))
		return SHRINK_STOP;
	gone = tide_give_lingering(sc->nr_to_scan);
	if (gone < sc->nr_to_scan)
		gone += tide_give_shares(sc->nr_to_scan - gone);
	mutex_unlock(&tide_stores_mutex);
	tide_account_reclaimed(gone);
	return gone ?: SHRINK_STOP;
}

/* ------------------------------------------------------------------ */
/* pages that come						       */
/* ------------------------------------------------------------------ */

/* Counts a page before it is there, so that batches cannot overshoot. */
static bool tide_store_charge(struct tide_store *store)
{
	u64 lent = atomic64_inc_return(&tide_lent_pages);
	u64 pages = atomic64_inc_return(&store->pages);

	if (pages <= READ_ONCE(store->limit) &&
	    lent <= tide_store_fits(READ_ONCE(tide_lend_bytes)))
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

/* All that may be lent is: those who are gone make room, before those who are here do. */
static bool tide_store_displace(void)
{
	unsigned long gone;

	if (tide_store_lent() < tide_store_fits(READ_ONCE(tide_lend_bytes)) ||
	    !mutex_trylock(&tide_stores_mutex))
		return false;
	gone = tide_give_lingering(TIDE_GIVE_BATCH);
	mutex_unlock(&tide_stores_mutex);
	return gone;
}

static struct tide_note *tide_note_alloc(struct tide_store *store)
{
	struct tide_note *note = kmem_cache_zalloc(tide_notes, TIDE_NOTE_GFP);

	if (!note)
		return NULL;
	note->slot = ida_alloc(&store->slots, TIDE_NOTE_GFP);
	if (note->slot >= 0)
		return note;
	kmem_cache_free(tide_notes, note);
	return NULL;
}

static struct folio *tide_store_alloc(struct tide_store *store)
{
	struct folio *folio;

	if (!tide_store_charge(store))
		return NULL;
	folio = tide_alloc_folio(TIDE_STORE_GFP);
	if (!folio)
		goto uncharge;
	folio->private = tide_note_alloc(store);
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

	if (!folio && tide_store_displace())
		folio = tide_store_alloc(store);
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
	struct tide_note *note = folio->private;

	folio->private = NULL;
	ida_free(&store->slots, note->slot);
	kmem_cache_free(tide_notes, note);
	folio_put(folio);
	tide_store_uncharge(store);
}

/* A page of any version, with a reference taken, and its tag; for cheats. */
static struct folio *tide_store_any(struct tide_store *store, u64 file, u64 index, u8 *tag)
{
	struct tide_key key = { .file = file, .index = index };
	struct folio *folio = NULL;
	struct tide_note *note;

	spin_lock_irq(&store->lock);
	note = tide_note_from(store, &key);
	if (note && note->key.file == file && note->key.index == index) {
		folio = tide_note_hold(note);
		memcpy(tag, note->tag, TIDE_TAG_SIZE);
	}
	spin_unlock_irq(&store->lock);
	return folio;
}

/* A lender that cheats: alters a page, or keeps an older one in its place. */
static void tide_cheat(struct tide_store *store, struct tide_note *note,
		       struct folio *folio)
{
	struct folio *old;
	u8 tag[TIDE_TAG_SIZE];

	if (tide_cheats(store->borrower, "alter")) {
		u8 *byte = kmap_local_folio(folio, note->key.index % PAGE_SIZE);

		*byte ^= 1;
		kunmap_local(byte);
	}
	old = tide_store_any(store, note->key.file, note->key.index, tag);
	if (!old)
		return;
	if (tide_cheats(store->borrower, "replay")) {
		copy_highpage(folio_page(folio, 0), folio_page(old, 0));
		memcpy(note->tag, tag, TIDE_TAG_SIZE);
	}
	folio_put(old);
}

/* A lender that cheats: sends a neighbour instead, with the neighbour's tag. */
static struct folio *tide_cheat_swap(struct tide_store *store, const struct tide_key *key,
				     struct folio *folio, u8 *tag)
{
	struct folio *other;
	u8 others[TIDE_TAG_SIZE];

	other = tide_store_any(store, key->file, key->index ^ 1, others);
	if (!other)
		return folio;
	memcpy(tag, others, TIDE_TAG_SIZE);
	folio_put(folio);
	return other;
}

/* An older version goes when a page comes; mutex held. */
static void tide_store_replace(struct tide_store *store, const struct tide_key *key)
{
	struct tide_key at = { .file = key->file, .index = key->index };

	while (tide_store_drop(store, &at, key->index, U64_MAX))
		;
}

static int tide_store_insert(struct tide_store *store, struct tide_note *note,
			     struct folio *folio)
{
	int err;

	tide_store_replace(store, &note->key);
	folio_mark_uptodate(folio);
	/* __GFP_WRITE: not a refault, so that it stays inactive */
	err = filemap_add_folio(store->inode->i_mapping, folio, note->slot,
				TIDE_STORE_GFP | __GFP_WRITE);
	if (err)
		return err;
	tide_note_keep(store, note, folio);
	folio_unlock(folio);
	return 0;
}

/**
 * tide_store_add() - keep a page
 * @store: the store
 * @item: which page this is, and its tag
 * @folio: from tide_store_prepare(), with the contents
 *
 * Context: process.
 * Return: 0, and tide_store_settle() is to follow, or a negative errno, and then
 * the page is not here.
 */
int tide_store_add(struct tide_store *store, const struct tide_put_item *item,
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
		mutex_lock(&store->mutex);
		if (tide_broken(LENDER))
			tide_cheat(store, note, folio);
		err = tide_store_insert(store, note, folio);
		mutex_unlock(&store->mutex);
	}
	if (err)
		tide_store_cancel(store, folio);
	else
		atomic64_inc(&store->borrower->stats.puts);
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
 * tide_store_settle() - leave pages that were added to themselves
 * @store: the store
 * @folio: pages that were added; the references are given back
 * @count: how many, at most TIDE_PUT_MAX
 *
 * They go to the cold end of the inactive list, before all that the guest has
 * read itself. A page is on that list some pages after it was added; what has
 * been overtaken meanwhile is of no account.
 *
 * Context: process, who adds.
 */
void tide_store_settle(struct tide_store *store, struct folio **folio, unsigned int count)
{
	unsigned int i;

	if (count)		/* flushes what is on its way to the list */
		tide_store_cool(store, &folio[0]->index, 1);
	for (i = 0; i < count; i++) {
		tide_folio_rotate(folio[i]);
		folio_put(folio[i]);
	}
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
	struct tide_key key = { .file = id, .index = index, .version = version };
	struct folio *folio = NULL;
	struct tide_note *note;

	spin_lock_irq(&store->lock);
	note = tide_note_from(store, &key);
	if (note && !tide_key_less(&key, &note->key)) {
		folio = tide_note_hold(note);
		memcpy(tag, note->tag, TIDE_TAG_SIZE);
	}
	spin_unlock_irq(&store->lock);
	if (folio && tide_cheats(store->borrower, "swap"))
		folio = tide_cheat_swap(store, &key, folio, tag);
	return folio;
}

/**
 * tide_store_forget() - drop pages that the borrower has no use for
 * @store: the store
 * @id: the remote file
 * @first: first page index
 * @last: last page index, inclusive
 * @before: only versions below this one
 *
 * Takes as long as there are pages in that range, but no longer than the
 * borrower is enabled and this connection its latest.
 *
 * Context: process.
 */
void tide_store_forget(struct tide_store *store, u64 id, pgoff_t first,
		       pgoff_t last, u64 before)
{
	struct tide_key at = { .file = id, .index = first };
	bool more = first <= last && !tide_cheats(store->borrower, "replay");

	while (more && READ_ONCE(store->borrower->enabled) &&
	       !READ_ONCE(store->borrower->taking)) {
		mutex_lock(&store->mutex);
		more = tide_store_drop(store, &at, last, before);
		mutex_unlock(&store->mutex);
		cond_resched();
	}
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

	WRITE_ONCE(store->trimming, true);
	while (more && tide_store_pages(store) > pages) {
		mutex_lock(&store->mutex);
		more = tide_store_recycle(store);
		mutex_unlock(&store->mutex);
		cond_resched();
	}
	WRITE_ONCE(store->trimming, false);
	if (tide_store_untold(store))
		tide_tell(store->borrower, 0);
}

/* ------------------------------------------------------------------ */
/* life of a store						       */
/* ------------------------------------------------------------------ */

/**
 * tide_store_create() - an empty store
 * @borrower: whose
 * @bytes: most that it may take
 *
 * Return: the store or NULL.
 */
struct tide_store *tide_store_create(struct tide_borrower *borrower, u64 bytes)
{
	struct tide_store *store = kzalloc(sizeof(*store), GFP_KERNEL);

	if (!store)
		return NULL;
	store->inode = tide_store_inode(store);
	if (!store->inode) {
		kfree(store);
		return NULL;
	}
	store->borrower = borrower;
	mutex_init(&store->mutex);
	ida_init(&store->slots);
	spin_lock_init(&store->lock);
	store->tree = RB_ROOT;
	INIT_LIST_HEAD(&store->order);
	INIT_LIST_HEAD(&store->late);
	INIT_LIST_HEAD(&store->gone);
	store->limit = tide_store_fits(bytes);
	mutex_lock(&tide_stores_mutex);
	list_add_tail(&store->list, &tide_stores);
	mutex_unlock(&tide_stores_mutex);
	return store;
}

/**
 * tide_store_resize() - let a store take more or less
 * @store: the store
 * @bytes: most that it may take from now on
 *
 * Context: process.
 */
void tide_store_resize(struct tide_store *store, u64 bytes)
{
	WRITE_ONCE(store->limit, tide_store_fits(bytes));
	WRITE_ONCE(store->gone_most, max3(store->gone_most, store->limit >> TIDE_NOTES_SHIFT,
					  (u64)TIDE_NOTES_LEAST));
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
	struct tide_note *note, *next;

	mutex_lock(&tide_stores_mutex);
	list_del(&store->list);
	mutex_unlock(&tide_stores_mutex);
	iput(store->inode);	/* drops its pages */
	cancel_delayed_work_sync(&store->borrower->notify);
	list_for_each_entry_safe(note, next, &store->gone, order)
		kmem_cache_free(tide_notes, note);
	ida_destroy(&store->slots);
	kfree(store);
}

static int tide_store_mount(void)
{
	tide_mnt = kern_mount(&tide_fs);
	return PTR_ERR_OR_ZERO(tide_mnt);
}

int tide_store_init(void)
{
	int err;

	/* a node of the page cache has XA_CHUNK_SIZE pages; a slot is a bit */
	BUILD_BUG_ON(sizeof(struct tide_note) + sizeof(struct xa_node) / XA_CHUNK_SIZE + 1 >
		     TIDE_NOTE_COST);
	tide_notes = kmem_cache_create("tidepool_note", sizeof(struct tide_note), 0,
				       SLAB_RECLAIM_ACCOUNT, NULL);
	if (!tide_notes)
		return -ENOMEM;
	err = tide_store_mount();
	if (err)
		goto notes;
	tide_giver = tide_shrinker_create("tidepool-lent", tide_give_count, tide_give_scan);
	if (!tide_giver) {
		err = -ENOMEM;
		goto unmount;
	}
	tide_giver->seeks = 0;
	return 0;
unmount:
	kern_unmount(tide_mnt);
notes:
	kmem_cache_destroy(tide_notes);
	return err;
}

void tide_store_exit(void)
{
	tide_shrinker_destroy(tide_giver);
	kern_unmount(tide_mnt);
	if (atomic64_read(&tide_lent_pages))
		tide_warn("%lld pages are still lent\n",
			  (s64)atomic64_read(&tide_lent_pages));
	kmem_cache_destroy(tide_notes);
}
