/* SPDX-License-Identifier: GPL-2.0-only */
/* Read-ahead windows: what comes from where: readahead.c. */
#ifndef TIDE_READAHEAD_H
#define TIDE_READAHEAD_H

#include <linux/fs.h>
#include <linux/pagemap.h>

#include "borrower/fetch.h"

/**
 * struct tide_read - a request whose pages are those of locked folios
 * @orig: the file system's own operations
 * @changes: of the file, from before the pages were looked up
 * @ahead: its folios were to be read ahead: whoever finds one unlocked and not up
 *	to date reads it himself
 * @get: the request
 */
struct tide_read {
	const struct address_space_operations *orig;
	u64 changes;
	bool ahead;
	struct tide_get get;
};

void tide_get_readahead(struct readahead_control *rac,
			const struct address_space_operations *orig);
int tide_get_read_folio(struct file *file, struct folio *folio,
			const struct address_space_operations *orig);

#endif /* TIDE_READAHEAD_H */
