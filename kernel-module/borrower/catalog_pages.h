/* SPDX-License-Identifier: GPL-2.0-only */
/* The pages of an object in the catalog: catalog_pages.c. */
#ifndef TIDE_CATALOG_PAGES_H
#define TIDE_CATALOG_PAGES_H

#include <linux/types.h>

struct tide_object;

#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */

/* Where a page is, or all of some pages: the slot of a lender, or */
#define TIDE_NOWHERE	(-1)	/* some page is not in the pool */
#define TIDE_BUFFERED	(-2)	/* all pages are in outgoing buffers */

int tide_leaves_init(void);
void tide_leaves_exit(void);
void tide_object_drop(struct tide_object *object, pgoff_t first, pgoff_t last);
void tide_object_drop_locked(struct tide_object *object, pgoff_t first, pgoff_t last);
void tide_object_unlearn(struct tide_object *object, pgoff_t index);
bool tide_object_has(struct tide_object *object, pgoff_t first, pgoff_t last);
int tide_object_where(struct tide_object *object, pgoff_t index);
u64 tide_object_version(struct tide_object *object, pgoff_t index, int *slot);
void tide_object_erase(struct tide_object *object, pgoff_t index, u64 version);
void tide_object_erase_locked(struct tide_object *object, pgoff_t index, u64 version);
int tide_object_record(struct tide_object *object, pgoff_t index, u64 version,
		       int slot, bool (*still)(void *arg), void *arg);
unsigned int tide_object_shrink(struct tide_object *object, unsigned int limit);
void tide_object_evicted(struct tide_object *object, pgoff_t index, u64 version, int slot);
void tide_object_purge(struct tide_object *object, const u64 *before);

#endif /* TIDE_CATALOG_PAGES_H */
