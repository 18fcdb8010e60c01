// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many of a lender's pages the catalog names, and how old they are. A lender
 * drops its oldest pages first and says so, but its notices may be late, lost, or
 * never come. So the catalog holds it to what it granted: when it names more pages
 * than that, those of the oldest versions are forgotten.
 *
 * Versions only grow. They are divided into ages, each from one version to the
 * next, with the number of its entries; the first age is what is forgotten. To
 * forget an age is to add it to the first: its entries are not believed from then
 * on, and go when they are come upon, or when the catalog is swept (catalog.c).
 */
#include "borrower/catalog_ages.h"
#include "borrower/peer.h"
#include "uapi/wire.h"

#define TIDE_AGE_SHIFT		6	/* an age: 1/64 of what may be there */

void tide_ages_init(struct tide_ages *ages)
{
	spin_lock_init(&ages->lock);
	ages->used = 2;		/* what is forgotten, and what is new */
}

/**
 * tide_ages_limit() - how many pages the catalog may name
 * @lender: whose
 *
 * What the lender granted, or less if less is wanted: a grant is only its word.
 *
 * Context: any.
 */
s64 tide_ages_limit(const struct tide_lender *lender)
{
	return min(READ_ONCE(lender->granted_pages),
		   READ_ONCE(lender->config.size_bytes) >> PAGE_SHIFT);
}

/* Notices are a little late; this many pages are not worth forgetting others. */
static s64 tide_ages_slack(s64 limit)
{
	return max_t(s64, limit >> TIDE_AGE_SHIFT, TIDE_PUT_MAX);
}

/* The age of a version: the last one that begins with it or before. */
static unsigned int tide_ages_find(const struct tide_ages *ages, u64 version)
{
	unsigned int low = 0, high = ages->used;

	while (high - low > 1) {
		unsigned int middle = (low + high) / 2;

		if (ages->age[middle].first <= version)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static void tide_ages_remove(struct tide_ages *ages, unsigned int i)
{
	ages->used--;
	memmove(&ages->age[i], &ages->age[i + 1], (ages->used - i) * sizeof(ages->age[0]));
}

/* Makes two neighbours one, those with the fewest entries. */
static void tide_ages_merge(struct tide_ages *ages)
{
	s64 sum, least = S64_MAX;
	unsigned int i, best = 1;

	for (i = 1; i + 1 < ages->used; i++) {
		sum = ages->age[i].count + ages->age[i + 1].count;
		if (sum < least) {
			least = sum;
			best = i;
		}
	}
	ages->age[best].count = least;
	tide_ages_remove(ages, best + 1);
}

/* A new age begins, after all versions that there were. */
static void tide_ages_turn(struct tide_ages *ages)
{
	if (ages->used == TIDE_AGES)
		tide_ages_merge(ages);
	ages->age[ages->used++] = (struct tide_age) { .first = ages->newest + 1 };
}

/* If it is the only one, a new one begins. */
static void tide_ages_forget_oldest(struct tide_lender *lender)
{
	struct tide_ages *ages = &lender->ages;

	if (ages->used == 2)
		tide_ages_turn(ages);
	atomic64_sub(ages->age[1].count, &lender->catalog_pages);
	ages->age[0].count += ages->age[1].count;
	tide_ages_remove(ages, 1);
	WRITE_ONCE(ages->oldest, ages->age[1].first);
}

/* Forgets the oldest while there are more than so many. */
static void tide_ages_keep(struct tide_lender *lender, s64 most)
{
	while (atomic64_read(&lender->catalog_pages) > most)
		tide_ages_forget_oldest(lender);
}

/**
 * tide_ages_enter() - an entry is made; old ones are forgotten if there are too many
 * @lender: whose page it is
 * @version: of the page
 *
 * Context: any, with the file's lock held.
 */
void tide_ages_enter(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;
	s64 limit = tide_ages_limit(lender), slack = tide_ages_slack(limit);
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&ages->lock, flags);
	ages->newest = max(ages->newest, version);
	i = tide_ages_find(ages, version);
	ages->age[i].count++;
	if (i)		/* 0: it has been on its way for long */
		atomic64_inc(&lender->catalog_pages);
	if (i == ages->used - 1 && ages->age[i].count >= slack)
		tide_ages_turn(ages);
	tide_ages_keep(lender, limit + slack);
	spin_unlock_irqrestore(&ages->lock, flags);
}

/**
 * tide_ages_granted() - a lender has said how much it grants
 * @lender: its new grant is set
 *
 * Context: process.
 */
void tide_ages_granted(struct tide_lender *lender)
{
	s64 limit = tide_ages_limit(lender);

	spin_lock_irq(&lender->ages.lock);
	tide_ages_keep(lender, limit + tide_ages_slack(limit));
	spin_unlock_irq(&lender->ages.lock);
}

/**
 * tide_ages_begin() - an age begins with a version
 * @lender: the lender
 * @version: newer than all that it has
 *
 * Context: process.
 */
void tide_ages_begin(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;

	spin_lock_irq(&ages->lock);
	ages->newest = max(ages->newest, version - 1);
	if (ages->age[ages->used - 1].count)
		tide_ages_turn(ages);
	else
		ages->age[ages->used - 1].first = version;
	spin_unlock_irq(&ages->lock);
}

/**
 * tide_ages_before() - may a lender have pages of versions older than this one?
 * @lender: the lender
 * @version: the version
 *
 * Context: process.
 * Return: false if it has none that are believed.
 */
bool tide_ages_before(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;
	s64 count = 0;
	unsigned int i;

	spin_lock_irq(&ages->lock);
	for (i = 1; i < ages->used && ages->age[i].first < version; i++)
		count += ages->age[i].count;
	spin_unlock_irq(&ages->lock);
	return count;
}

/**
 * tide_ages_forget_before() - forget the pages of older versions
 * @lender: the lender
 * @version: the oldest that is believed from now on, if an age begins with it
 *
 * Context: process.
 */
void tide_ages_forget_before(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;

	spin_lock_irq(&ages->lock);
	ages->newest = max(ages->newest, version - 1);
	while (ages->age[1].first < version)
		tide_ages_forget_oldest(lender);
	spin_unlock_irq(&ages->lock);
}

/**
 * tide_ages_evicted_before() - forget the ages of which the lender has nothing
 * @lender: the lender
 * @version: it has no older one
 *
 * An age that is in part older stays, so that what is believed is counted.
 *
 * Context: process.
 */
void tide_ages_evicted_before(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;

	spin_lock_irq(&ages->lock);
	if (version > ages->newest && ages->age[ages->used - 1].count)
		tide_ages_turn(ages);
	while (ages->used > 2 && ages->age[2].first <= version)
		tide_ages_forget_oldest(lender);
	spin_unlock_irq(&ages->lock);
}

/**
 * tide_ages_leave() - an entry is cleared
 * @lender: whose page it was
 * @version: of the page
 *
 * Context: any, with the file's lock held.
 */
void tide_ages_leave(struct tide_lender *lender, u64 version)
{
	struct tide_ages *ages = &lender->ages;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&ages->lock, flags);
	i = tide_ages_find(ages, version);
	ages->age[i].count--;
	if (i)
		atomic64_dec(&lender->catalog_pages);
	spin_unlock_irqrestore(&ages->lock, flags);
}
