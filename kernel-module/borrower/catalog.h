/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of which object are where, in which version: catalog.c, catalog_pages.c. */
#ifndef TIDE_CATALOG_H
#define TIDE_CATALOG_H

#include <linux/types.h>

struct tide_lender;
struct tide_object;

#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */

/* Where a page is, or all of some pages: the slot of a lender, or */
#define TIDE_NOWHERE	(-1)	/* some page is not in the pool */
#define TIDE_BUFFERED	(-2)	/* all pages are in outgoing buffers */

int tide_catalog_init(void);
void tide_catalog_exit(void);
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version);
void tide_catalog_evicted_before(struct tide_lender *lender, u64 version);
void tide_catalog_granted(struct tide_lender *lender);
void tide_catalog_purge_lender(int slot);
void tide_catalog_sweep_if_due(void);
u64 tide_catalog_pages(void);
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages);

/* catalog_pages.c */
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

/* catalog_shrinker.c */
int tide_shrinker_init(void);
void tide_shrinker_exit(void);

#endif /* TIDE_CATALOG_H */
