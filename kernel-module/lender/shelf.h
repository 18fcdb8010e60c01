/* SPDX-License-Identifier: GPL-2.0-only */
/* Lent pages as clean folios of a private inode: shelf.c. */
#ifndef TIDE_SHELF_H
#define TIDE_SHELF_H

#include <linux/fs.h>
#include <linux/types.h>

#include "uapi/wire.h"

struct tide_borrower;
struct tide_store;

/* What is remembered of a lent page, at most: it counts as lent, too. */
#define TIDE_NOTE_COST		128

int tide_store_init(void);
void tide_store_exit(void);
struct tide_store *tide_store_create(struct tide_borrower *borrower, u64 bytes);
void tide_store_destroy(struct tide_store *store);
void tide_store_resize(struct tide_store *store, u64 bytes);
struct folio *tide_store_get(struct tide_store *store, u64 file, pgoff_t index,
			     u64 version, u8 *tag);
struct folio *tide_store_prepare(struct tide_store *store);
void tide_store_cancel(struct tide_store *store, struct folio *folio);
int tide_store_add(struct tide_store *store, const struct tide_put_item *item,
		   struct folio *folio);
void tide_store_settle(struct tide_store *store, struct folio **folio,
		       unsigned int count);
void tide_store_forget(struct tide_store *store, u64 file, pgoff_t first,
		       pgoff_t last, u64 before);
unsigned int tide_store_notices(struct tide_store *store,
				struct tide_page_id *id, unsigned int max);
u64 tide_store_before(struct tide_store *store, u64 *told);
unsigned int tide_store_untold(struct tide_store *store);
bool tide_store_trimming(struct tide_store *store);
void tide_store_trim(struct tide_store *store, u64 pages);
u64 tide_store_pages(struct tide_store *store);
u64 tide_store_lent(void);
u64 tide_store_fits(u64 bytes);

extern const struct address_space_operations tide_store_aops;

static inline bool tide_store_owns(const struct address_space *mapping)
{
	return mapping->a_ops == &tide_store_aops;
}

void tide_store_deleted(struct address_space *mapping, struct folio *folio);

#endif /* TIDE_SHELF_H */
