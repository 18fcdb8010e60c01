/* SPDX-License-Identifier: GPL-2.0-only */
/* Which pages of which object are where, in which version: catalog.c. */
#ifndef TIDE_CATALOG_H
#define TIDE_CATALOG_H

#include <linux/types.h>

struct tide_lender;
struct tide_object;

int tide_catalog_init(void);
void tide_catalog_exit(void);
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version);
void tide_catalog_evicted_before(struct tide_lender *lender, u64 version);
void tide_catalog_granted(struct tide_lender *lender);
void tide_catalog_purge_lender(int slot);
void tide_catalog_sweep_if_due(void);
u64 tide_catalog_pages(void);
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages);
struct tide_object *tide_object_create(dev_t dev);
void tide_object_destroy(struct tide_object *object);

#endif /* TIDE_CATALOG_H */
