/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the catalog (catalog.c) and their pages (leaves.c) share. */
#ifndef TIDE_CATALOG_H
#define TIDE_CATALOG_H

#include "tidepool.h"

#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */

int tide_leaves_init(void);
void tide_leaves_exit(void);
unsigned int tide_file_shrink(struct tide_file *file, unsigned int limit);
void tide_file_evicted(struct tide_file *file, pgoff_t index, u64 version, int slot);
void tide_file_purge(struct tide_file *file, int slot);

#endif /* TIDE_CATALOG_H */
