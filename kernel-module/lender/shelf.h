/* SPDX-License-Identifier: GPL-2.0-only */
/* Lent pages as clean folios of a private inode: shelf.c. */
#ifndef TIDE_SHELF_H
#define TIDE_SHELF_H

#include <linux/fs.h>
#include <linux/types.h>

#include "lender/notes.h"
#include "uapi/wire.h"

struct tide_borrower;
struct tide_notes;
struct tide_shelf;

/* Pages of a file from one on to a last index, and of them those older than a version. */
struct tide_range {
	struct tide_key at;
	u64 last, before;
};

/* What is remembered of a lent page, at most: it counts as lent, too. */
#define TIDE_NOTE_COST		128

int tide_shelf_init(void);
void tide_shelf_exit(void);
struct tide_shelf *tide_shelf_create(struct tide_borrower *borrower, u64 bytes);
void tide_shelf_destroy(struct tide_shelf *shelf);
void tide_shelf_resize(struct tide_shelf *shelf, u64 bytes);
struct folio *tide_shelf_get(struct tide_shelf *shelf, u64 file, pgoff_t index,
			     u64 version, u8 *tag);
struct folio *tide_shelf_prepare(struct tide_shelf *shelf);
void tide_shelf_cancel(struct tide_shelf *shelf, struct folio *folio);
int tide_shelf_add(struct tide_shelf *shelf, const struct tide_put_item *item,
		   struct folio *folio);
void tide_shelf_settle(struct tide_shelf *shelf, struct folio **folio,
		       unsigned int count);
bool tide_shelf_forget(struct tide_shelf *shelf, struct tide_range *range, unsigned int *most);
struct tide_notes *tide_shelf_notes(struct tide_shelf *shelf);
bool tide_shelf_trimming(struct tide_shelf *shelf);
void tide_shelf_trim(struct tide_shelf *shelf, u64 pages);
u64 tide_shelf_fits(u64 bytes);

/* What this guest may lend, set through configfs. */
extern u64 tide_lend_bytes;
extern u64 tide_reserve_bytes;

extern const struct address_space_operations tide_shelf_aops;

static inline bool tide_shelf_owns(const struct address_space *mapping)
{
	return mapping->a_ops == &tide_shelf_aops;
}

void tide_shelf_deleted(struct address_space *mapping, struct folio *folio);

#endif /* TIDE_SHELF_H */
