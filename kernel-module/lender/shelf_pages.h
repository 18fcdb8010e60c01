/* SPDX-License-Identifier: GPL-2.0-only */
/* What a shelf is made of, for those who fill it (shelf.c) and empty it (giveback.c). */
#ifndef TIDE_SHELF_PAGES_H
#define TIDE_SHELF_PAGES_H

#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/mutex.h>

#include "lender/borrowers.h"
#include "lender/notes.h"
#include "lender/shelf.h"

/**
 * struct tide_shelf - the pages that one borrower has here
 * @list: of all shelves
 * @borrower: whose
 * @inode: what they are pages of
 * @mutex: adding pages, and taking them away on purpose
 * @slots: the indices that are taken
 * @pages: how many are here
 * @limit: most that it may have
 * @notes: what is known of them, and of those of which the borrower is to be told
 * @trimming: many pages go: the borrower is told afterwards
 */
struct tide_shelf {
	struct list_head list;
	struct tide_borrower *borrower;
	struct inode *inode;
	struct mutex mutex;	/* outside the mapping's locks */
	struct ida slots;
	atomic64_t pages;
	u64 limit;
	struct tide_notes notes;
	bool trimming;
};

static inline u64 tide_shelf_pages(struct tide_shelf *shelf)
{
	return atomic64_read(&shelf->pages);
}

#endif /* TIDE_SHELF_PAGES_H */
