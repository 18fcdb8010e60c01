/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the catalog (catalog.c) and their pages (catalog_pages.c) share. */
#ifndef TIDE_CATALOG_H
#define TIDE_CATALOG_H

#include "tidepool.h"

#define TIDE_DROP_CHUNK		256	/* entries dropped with interrupts off */

extern struct workqueue_struct *tide_catalog_queue;

/* catalog_table.c */
int tide_table_init(void);
void tide_table_exit(void);
struct tide_file *tide_file_find_id(u64 id);
struct tide_file *tide_table_insert(struct tide_file *file, struct inode *inode);
void tide_table_remove(struct tide_file *file);
void tide_table_for_each(const struct super_block *sb,
			 void (*fn)(struct tide_file *file, void *arg), void *arg);
struct tide_file *tide_table_cold(void);

/* catalog.c */
void tide_catalog_sweep_if_due(void);

/* catalog_pages.c */
int tide_leaves_init(void);
void tide_leaves_exit(void);
unsigned int tide_file_shrink(struct tide_file *file, unsigned int limit);
void tide_file_evicted(struct tide_file *file, pgoff_t index, u64 version, int slot);
void tide_file_purge(struct tide_file *file, const u64 *before);

/* catalog_ages.c */
void tide_ages_enter(struct tide_lender *lender, u64 version);
void tide_ages_granted(struct tide_lender *lender);
void tide_ages_leave(struct tide_lender *lender, u64 version);

/* Is a page of this version not to be believed in any more? */
static inline bool tide_ages_forgot(const struct tide_lender *lender, u64 version)
{
	return version < READ_ONCE(lender->ages.oldest);
}

/* Entries that are forgotten and take memory still. */
static inline s64 tide_ages_forgotten(const struct tide_lender *lender)
{
	return READ_ONCE(lender->ages.age[0].count);
}

#endif /* TIDE_CATALOG_H */
