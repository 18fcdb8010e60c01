/* SPDX-License-Identifier: GPL-2.0-only */
/* What is known of the pages that a borrower has here, or had: notes.c. */
#ifndef TIDE_NOTES_H
#define TIDE_NOTES_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "uapi/wire.h"

struct folio;

/* What a borrower calls a page. */
struct tide_key {
	u64 file, index, version;
};

/**
 * struct tide_note - what is known of a page that is, or was, here
 * @node: in the tree, while the page is here
 * @order: in the list of pages, or of those that are gone
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
 * struct tide_notes - the notes of one borrower's pages
 * @lock: guards the rest, taken with interrupts off
 * @tree: notes of all pages by their keys
 * @order: the same, the oldest first, but for those in
 * @late: older still: they could not go when it was their turn; likewise in order
 * @gone: notes of which the borrower is to be told
 * @newest: version that was ever here
 * @gone_count: how many
 * @gone_most: so many, and in their place it is told a version
 * @thinned: how many such notes there have been
 */
struct tide_notes {
	spinlock_t lock;	/* a leaf, inside i_pages */
	struct rb_root tree;
	struct list_head order, late, gone;
	u64 newest;
	unsigned int gone_count;
	u64 gone_most, thinned;
};

int tide_notes_init(void);
void tide_notes_exit(void);
void tide_notes_begin(struct tide_notes *notes);
void tide_notes_end(struct tide_notes *notes);
void tide_notes_limit(struct tide_notes *notes, u64 pages);
struct tide_note *tide_note_alloc(gfp_t gfp);
void tide_note_free(struct tide_note *note);
void tide_note_keep(struct tide_notes *notes, struct tide_note *note, struct folio *folio);
void tide_note_moved(struct tide_notes *notes, struct tide_note *note, struct folio *folio);
unsigned int tide_note_drop(struct tide_notes *notes, struct tide_note *note, bool reclaimed);
struct folio *tide_notes_find(struct tide_notes *notes, const struct tide_key *key, u8 *tag);
struct folio *tide_notes_any(struct tide_notes *notes, u64 file, u64 index, u8 *tag);
bool tide_notes_step(struct tide_notes *notes, struct tide_key *at, u64 last, u64 before,
		     struct folio **folio);
struct folio *tide_notes_recycle(struct tide_notes *notes);
unsigned int tide_notes_eldest(struct tide_notes *notes, pgoff_t *slot, unsigned int max);
unsigned int tide_notes_overdue(struct tide_notes *notes, pgoff_t *slot, unsigned int max);
unsigned int tide_notes_take(struct tide_notes *notes, struct tide_page_id *id,
			     unsigned int max);
u64 tide_notes_before(struct tide_notes *notes, u64 *told);
unsigned int tide_notes_untold(struct tide_notes *notes);

#endif /* TIDE_NOTES_H */
