/* SPDX-License-Identifier: GPL-2.0-only */
/* No more entries of a lender than it granted: catalog_ages.c. */
#ifndef TIDE_CATALOG_AGES_H
#define TIDE_CATALOG_AGES_H

#include <linux/compiler.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct tide_lender;

#define TIDE_AGES	128

/**
 * struct tide_ages - how old the entries are that the catalog has of a lender
 * @lock: guards all of these and the lender's catalog_pages
 * @newest: version that there was
 * @oldest: entries of older versions are forgotten
 * @used: how many there are, at least two
 * @age: from @first to the next one's, @count entries; of the first, those that
 *	are forgotten and not yet cleared
 */
struct tide_ages {
	spinlock_t lock;	/* a leaf */
	u64 newest, oldest;
	unsigned int used;
	struct tide_age {
		u64 first;
		s64 count;
	} age[TIDE_AGES];
};

void tide_ages_init(struct tide_ages *ages);
s64 tide_ages_limit(const struct tide_lender *lender);
void tide_ages_begin(struct tide_lender *lender, u64 version);
bool tide_ages_before(struct tide_lender *lender, u64 version);
void tide_ages_forget_before(struct tide_lender *lender, u64 version);
void tide_ages_evicted_before(struct tide_lender *lender, u64 version);
void tide_ages_enter(struct tide_lender *lender, u64 version);
void tide_ages_granted(struct tide_lender *lender);
void tide_ages_leave(struct tide_lender *lender, u64 version);

/* Is a page of this version not to be believed in any more? */
static inline bool tide_ages_forgot(const struct tide_ages *ages, u64 version)
{
	return version < READ_ONCE(ages->oldest);
}

/* Entries that are forgotten and take memory still. */
static inline s64 tide_ages_forgotten(const struct tide_ages *ages)
{
	return READ_ONCE(ages->age[0].count);
}

#endif /* TIDE_CATALOG_AGES_H */
