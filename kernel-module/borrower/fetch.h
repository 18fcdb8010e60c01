/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests: what read-ahead, their way (fetch.c) and sending (outbox.c) share. */
#ifndef TIDE_GET_H
#define TIDE_GET_H

#include "tidepool.h"

/**
 * struct tide_get - one request: pages of one file at one lender
 * @list: in lender->unsent or lender->pending
 * @work: reads from disk what did not arrive
 * @lender: where the pages are; holds a reference
 * @file: whose pages they are; holds a reference
 * @orig: the file system's own operations
 * @changes: of @file, from before the pages were looked up
 * @start: when the reader asked
 * @id: on the wire
 * @size: of the window that it is part of
 * @hit: some page has come
 * @receiving: the receiving thread is filling its pages
 * @exclusive: the lender is to drop what it sends
 * @ahead: its folios were to be read ahead: whoever finds one unlocked and not up
 *	to date reads it himself
 * @count: of @page
 * @page: the pages, those of one folio side by side; @page NULL when done;
 *	@corrupt: something else came, which is counted and not a miss
 */
struct tide_get {
	struct list_head list;
	struct work_struct work;
	struct tide_lender *lender;
	struct tide_file *file;
	const struct address_space_operations *orig;
	u64 changes;
	ktime_t start;
	u64 id;
	enum tide_size size;
	bool hit, receiving, exclusive, ahead;
	unsigned int count;
	struct tide_get_page {
		struct page *page;
		pgoff_t index;
		u64 version;
		bool arrived, corrupt;
	} page[];
};

extern struct workqueue_struct *tide_disk_queue;	/* reads from disk */

/* fetch.c */
void tide_get_submit(struct tide_get *get);
void tide_get_free(struct tide_get *get);
unsigned int tide_next_folio(const struct tide_get *get, unsigned int i);

/* pagecache/fallback.c */
void tide_get_from_disk(struct tide_get *get);

/* pagecache/verify.c */
void tide_verify_init(void);
void tide_folio_came(struct folio *folio, struct tide_file *file,
		     const struct address_space_operations *orig, u64 changes);

/* outbox.c */
int tide_tx_prepare(struct tide_lender *lender);
void tide_tx_release(struct tide_lender *lender);

#endif /* TIDE_GET_H */
