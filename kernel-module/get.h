/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests: what read-ahead (window.c), their way (get.c) and sending (transmit.c) share. */
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
 * @start: when the reader asked
 * @id: on the wire
 * @size: of the window that it is part of
 * @hit: some page has come
 * @receiving: the receiving thread is filling its pages
 * @exclusive: the lender is to drop what it sends
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
	ktime_t start;
	u64 id;
	enum tide_size size;
	bool hit, receiving, exclusive;
	unsigned int count;
	struct tide_get_page {
		struct page *page;
		pgoff_t index;
		u64 version;
		bool arrived, corrupt;
	} page[];
};

extern struct workqueue_struct *tide_disk_queue;	/* reads from disk */

/* get.c */
void tide_get_submit(struct tide_get *get);
void tide_get_free(struct tide_get *get);
void tide_folio_done(struct folio *folio);

/* transmit.c */
int tide_tx_prepare(struct tide_lender *lender);
void tide_tx_release(struct tide_lender *lender);

#endif /* TIDE_GET_H */
