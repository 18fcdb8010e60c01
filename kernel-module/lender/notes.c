// SPDX-License-Identifier: GPL-2.0-only
/*
 * Notes of lent pages: in a tree by what the borrower calls a page, and in a list in
 * the order of arrival. A note that is in the tree has a page: the page leaves the page
 * cache only after its note has left the tree. The note of a page that was taken away
 * stays until the borrower has been told.
 *
 * Versions come in order, and the oldest page is the first to be taken away. So for
 * notes of pages that are older than all that are here one version will do: nothing
 * older is left. When there are many notes, of a borrower that does not listen or
 * that loses much at once, only the latest are kept.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "lender/notes.h"

#define TIDE_NOTES_SHIFT	6		/* notes kept: an age of the borrower's, */
#define TIDE_NOTES_LEAST	1024		/* and no less than this */

static struct kmem_cache *tide_note_cache;

int tide_notes_init(void)
{
	tide_note_cache = kmem_cache_create("tidepool_note", sizeof(struct tide_note), 0,
					    SLAB_RECLAIM_ACCOUNT, NULL);
	return tide_note_cache ? 0 : -ENOMEM;
}

void tide_notes_exit(void)
{
	kmem_cache_destroy(tide_note_cache);
}

/**
 * tide_notes_begin() - no page is here yet
 * @notes: zeroed
 */
void tide_notes_begin(struct tide_notes *notes)
{
	spin_lock_init(&notes->lock);
	notes->tree = RB_ROOT;
	INIT_LIST_HEAD(&notes->order);
	INIT_LIST_HEAD(&notes->late);
	INIT_LIST_HEAD(&notes->gone);
}

/**
 * tide_notes_end() - nobody will be told any more
 * @notes: no page is here any more
 */
void tide_notes_end(struct tide_notes *notes)
{
	struct tide_note *note, *next;

	list_for_each_entry_safe(note, next, &notes->gone, order)
		tide_note_free(note);
}

/**
 * tide_notes_limit() - how many notes of pages that are gone may be kept
 * @notes: the notes
 * @pages: so many pages may be here
 *
 * It never becomes less: the notes may be there already.
 */
void tide_notes_limit(struct tide_notes *notes, u64 pages)
{
	WRITE_ONCE(notes->gone_most, max3(notes->gone_most, pages >> TIDE_NOTES_SHIFT,
					  (u64)TIDE_NOTES_LEAST));
}

struct tide_note *tide_note_alloc(gfp_t gfp)
{
	return kmem_cache_zalloc(tide_note_cache, gfp);
}

void tide_note_free(struct tide_note *note)
{
	kmem_cache_free(tide_note_cache, note);
}

static bool tide_key_less(const struct tide_key *a, const struct tide_key *b)
{
	if (a->file != b->file)
		return a->file < b->file;
	if (a->index != b->index)
		return a->index < b->index;
	return a->version < b->version;
}

/* The first note that is not before a key; the lock is held. */
static struct tide_note *tide_note_from(struct tide_notes *notes,
					const struct tide_key *key)
{
	struct rb_node *node = notes->tree.rb_node;
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

/**
 * tide_note_keep() - a page is here
 * @notes: of the borrower
 * @note: of the page
 * @folio: the page, locked, so that both stay
 */
void tide_note_keep(struct tide_notes *notes, struct tide_note *note, struct folio *folio)
{
	note->folio = folio;
	spin_lock_irq(&notes->lock);
	rb_add(&note->node, &notes->tree, tide_note_less);
	list_add_tail(&note->order, &notes->order);
	notes->newest = max(notes->newest, note->key.version);
	spin_unlock_irq(&notes->lock);
}

/**
 * tide_note_moved() - a page is another folio now
 * @notes: of the borrower
 * @note: of the page
 * @folio: which
 */
void tide_note_moved(struct tide_notes *notes, struct tide_note *note, struct folio *folio)
{
	spin_lock_irq(&notes->lock);
	note->folio = folio;
	spin_unlock_irq(&notes->lock);
}

/*
 * The page of a note with a reference taken; NULL while the kernel is about to
 * reclaim it. The lock is held.
 */
static struct folio *tide_note_hold(struct tide_note *note)
{
	return folio_try_get(note->folio) ? note->folio : NULL;
}

static struct tide_note *tide_note_first(struct list_head *list)
{
	return list_first_entry_or_null(list, struct tide_note, order);
}

/* No page that is here, or comes, is older. The lock is held. */
static u64 tide_notes_lowest(struct tide_notes *notes)
{
	struct tide_note *note = tide_note_first(&notes->late) ?: tide_note_first(&notes->order);

	return note ? note->key.version : notes->newest + 1;
}

/*
 * There is a note more. If these are too many, of the two that wait longest those go
 * that are older than all that is here; others wait once more, unless there are as many
 * as there were ever pages: whoever gives versions as he likes may ask in vain. The
 * lock is held.
 */
static void tide_notes_thin(struct tide_notes *notes)
{
	u64 lowest = tide_notes_lowest(notes);
	unsigned int i;

	for (i = 0; i < 2 && notes->gone_count > notes->gone_most; i++) {
		struct tide_note *note = tide_note_first(&notes->gone);

		if (note->key.version >= lowest &&
		    notes->gone_count <= notes->gone_most << TIDE_NOTES_SHIFT) {
			list_move_tail(&note->order, &notes->gone);
			continue;
		}
		list_del(&note->order);
		tide_note_free(note);
		notes->gone_count--;
		notes->thinned++;
	}
}

/**
 * tide_note_drop() - a page is gone
 * @notes: of the borrower
 * @note: of the page; freed unless the borrower is to be told
 * @reclaimed: the kernel has taken it, not the borrower
 *
 * Context: any, also with interrupts off.
 * Return: of how many the borrower is to be told now, this one included, or 0.
 */
unsigned int tide_note_drop(struct tide_notes *notes, struct tide_note *note, bool reclaimed)
{
	unsigned int gone = 0;
	unsigned long flags;

	spin_lock_irqsave(&notes->lock, flags);
	reclaimed |= note->recycled;
	rb_erase(&note->node, &notes->tree);
	if (reclaimed) {
		list_move_tail(&note->order, &notes->gone);
		gone = ++notes->gone_count;
		tide_notes_thin(notes);
	} else {
		list_del(&note->order);
	}
	spin_unlock_irqrestore(&notes->lock, flags);
	if (!reclaimed)
		tide_note_free(note);
	return gone;
}

/**
 * tide_notes_find() - a page in one version
 * @notes: of the borrower
 * @key: which
 * @tag: set to what came with it
 *
 * Return: the folio with a reference taken, or NULL.
 */
struct folio *tide_notes_find(struct tide_notes *notes, const struct tide_key *key, u8 *tag)
{
	struct folio *folio = NULL;
	struct tide_note *note;

	spin_lock_irq(&notes->lock);
	note = tide_note_from(notes, key);
	if (note && !tide_key_less(key, &note->key)) {
		folio = tide_note_hold(note);
		memcpy(tag, note->tag, TIDE_TAG_SIZE);
	}
	spin_unlock_irq(&notes->lock);
	return folio;
}

/**
 * tide_notes_any() - a page in whatever version; for cheats
 * @notes: of the borrower
 * @file: of which it is
 * @index: which of its pages
 * @tag: set to what came with it
 *
 * Return: the folio with a reference taken, or NULL.
 */
struct folio *tide_notes_any(struct tide_notes *notes, u64 file, u64 index, u8 *tag)
{
	struct tide_key key = { .file = file, .index = index };
	struct folio *folio = NULL;
	struct tide_note *note;

	spin_lock_irq(&notes->lock);
	note = tide_note_from(notes, &key);
	if (note && note->key.file == file && note->key.index == index) {
		folio = tide_note_hold(note);
		memcpy(tag, note->tag, TIDE_TAG_SIZE);
	}
	spin_unlock_irq(&notes->lock);
	return folio;
}

/**
 * tide_notes_step() - one step of a walk through a file's pages
 * @notes: of the borrower
 * @at: moved behind the first page that is not before it
 * @last: no page after this index
 * @before: the page is held when it is older than this version
 * @folio: set to the page, with a reference taken, or NULL
 *
 * Return: whether there was a page.
 */
bool tide_notes_step(struct tide_notes *notes, struct tide_key *at, u64 last, u64 before,
		     struct folio **folio)
{
	struct tide_note *note;
	bool found;

	*folio = NULL;
	spin_lock_irq(&notes->lock);
	note = tide_note_from(notes, at);
	found = note && note->key.file == at->file && note->key.index <= last;
	if (found) {
		*at = note->key;
		at->version++;
		if (note->key.version < before)
			*folio = tide_note_hold(note);
	}
	spin_unlock_irq(&notes->lock);
	return found;
}

/* The first page of a list, held, whose loss the borrower is to be told of. */
static struct folio *tide_note_recycle(struct list_head *list)
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

/**
 * tide_notes_recycle() - the oldest page, to be taken away
 * @notes: of the borrower, who is to be told
 *
 * Return: the folio with a reference taken, or NULL when there is none to take.
 */
struct folio *tide_notes_recycle(struct tide_notes *notes)
{
	struct folio *folio;

	spin_lock_irq(&notes->lock);
	folio = tide_note_recycle(&notes->late) ?: tide_note_recycle(&notes->order);
	spin_unlock_irq(&notes->lock);
	return folio;
}

/**
 * tide_notes_eldest() - indices of the oldest pages
 * @notes: of the borrower
 * @slot: where to
 * @max: at most this many
 *
 * What cannot go now, being sent, is late then.
 *
 * Return: how many.
 */
unsigned int tide_notes_eldest(struct tide_notes *notes, pgoff_t *slot, unsigned int max)
{
	struct tide_note *note;
	unsigned int n = 0;

	spin_lock_irq(&notes->lock);
	if (list_empty(&notes->order))
		list_splice_init(&notes->late, &notes->order);
	while (n < max && (note = tide_note_first(&notes->order))) {
		list_move_tail(&note->order, &notes->late);
		slot[n++] = note->slot;
	}
	spin_unlock_irq(&notes->lock);
	return n;
}

/**
 * tide_notes_overdue() - indices of pages that are late
 * @notes: of the borrower
 * @slot: where to
 * @max: at most this many
 *
 * They keep their places, so that all are in order.
 *
 * Return: how many.
 */
unsigned int tide_notes_overdue(struct tide_notes *notes, pgoff_t *slot, unsigned int max)
{
	struct tide_note *note;
	unsigned int n = 0;

	spin_lock_irq(&notes->lock);
	list_for_each_entry(note, &notes->late, order) {
		if (n == max)
			break;
		slot[n++] = note->slot;
	}
	spin_unlock_irq(&notes->lock);
	return n;
}

/**
 * tide_notes_take() - take notices that are to be sent
 * @notes: of the borrower
 * @id: where to
 * @max: at most this many
 *
 * Return: how many were taken.
 */
unsigned int tide_notes_take(struct tide_notes *notes, struct tide_page_id *id,
			     unsigned int max)
{
	struct tide_note *note, *next;
	unsigned int n = 0;
	LIST_HEAD(told);

	spin_lock_irq(&notes->lock);
	list_for_each_entry_safe(note, next, &notes->gone, order) {
		if (n == max)
			break;
		id[n++] = (struct tide_page_id) {
			.file = cpu_to_le64(note->key.file),
			.index = cpu_to_le64(note->key.index),
			.version = cpu_to_le64(note->key.version),
		};
		list_move(&note->order, &told);
	}
	notes->gone_count -= n;
	spin_unlock_irq(&notes->lock);
	list_for_each_entry_safe(note, next, &told, order)
		tide_note_free(note);
	return n;
}

/**
 * tide_notes_before() - a version that the borrower is to be told
 * @notes: of the borrower
 * @told: how many notes the last one stood for; set to what this one does
 *
 * It is true of a borrower that puts pages in the order of their versions.
 *
 * Return: nothing older is here; 0 when every page that has gone since has a note.
 */
u64 tide_notes_before(struct tide_notes *notes, u64 *told)
{
	u64 before = 0;

	spin_lock_irq(&notes->lock);
	if (*told != notes->thinned)
		before = tide_notes_lowest(notes);
	*told = notes->thinned;
	spin_unlock_irq(&notes->lock);
	return before;
}

/**
 * tide_notes_untold() - how many pages are gone without the borrower's knowledge
 * @notes: of the borrower
 */
unsigned int tide_notes_untold(struct tide_notes *notes)
{
	return READ_ONCE(notes->gone_count);
}
