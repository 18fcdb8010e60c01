// SPDX-License-Identifier: GPL-2.0
/* How many of a lender's pages are believed in (catalog_ages.c), against a list of them. */
#include "borrower/catalog_ages.c"

#include "fuzz.h"

#define ENTRIES		8192
#define OPERATIONS	4096

static struct tide_lender lender;
static u64 entry[ENTRIES];	/* versions, in no order */
static unsigned int entries;
static u64 last;
static bool steady;		/* the grant has always been the same */

static s64 believed(void)
{
	return atomic64_read(&lender.catalog_pages);
}

static s64 count_older(u64 version)
{
	s64 n = 0;

	for (unsigned int i = 0; i < entries; i++)
		n += entry[i] < version;
	return n;
}

static void check(void)
{
	s64 forgotten = count_older(lender.ages.oldest);

	fuzz_assert(tide_ages_forgotten(&lender.ages) == forgotten);
	fuzz_assert(believed() == entries - forgotten);
}

/* Mostly newer than all before; what was queued by two processors is a little out of order. */
static void enter(void)
{
	s64 limit = tide_ages_limit(&lender), slack = tide_ages_slack(limit), before = believed();
	u64 version = last + 1 + fuzz_draw(20), late = fuzz_draw(40), oldest = lender.ages.oldest;

	last = version;
	if (fuzz_one_in(8))
		version -= min(version - 1, late);
	entry[entries++] = version;
	tide_ages_enter(&lender, version);
	fuzz_assert(believed() <= limit + slack);
	fuzz_assert(lender.ages.oldest >= oldest);
	fuzz_assert(before < limit + slack || !steady || believed() >= limit - slack);
	if (before < limit + slack)
		fuzz_assert(lender.ages.oldest == oldest);
}

static void grant(u64 pages)
{
	lender.granted_pages = pages;
	tide_ages_granted(&lender);
	fuzz_assert(believed() <= (s64)pages + tide_ages_slack(pages));
}

/* It has nothing older than some version: of what is older one age is believed in at most, of what is not all. */
static void evicted_before(void)
{
	u64 version = fuzz_one_in(4) ? last + 1 : last - min(last, fuzz_draw(ENTRIES * 16)), oldest = lender.ages.oldest;
	s64 limit = tide_ages_limit(&lender);

	tide_ages_evicted_before(&lender, version);
	fuzz_assert(lender.ages.oldest >= oldest && lender.ages.oldest <= max(oldest, version));
	fuzz_assert(!steady || believed() - (entries - count_older(version)) <= 2 * tide_ages_slack(limit));
	fuzz_assert(version <= last || !believed());
}

static void leave(void)
{
	unsigned int i = fuzz_one_in(2) ? fuzz_draw(entries) : fuzz_draw(1 + entries / 16);
	u64 version = entry[i];

	entry[i] = entry[--entries];
	tide_ages_leave(&lender, version);
}

unsigned long fuzz_connection(void)
{
	unsigned int enters = 2 + fuzz_draw(6);

	memset(&lender, 0, sizeof(lender));
	entries = 0;
	last = 0;
	tide_ages_init(&lender.ages);
	lender.config.size_bytes = SZ_1M * (1 + fuzz_draw(16));
	lender.granted_pages = 256 + fuzz_draw(4096);
	steady = !fuzz_one_in(4);
	for (int i = 0; i < OPERATIONS; i++) {
		if (!steady && fuzz_one_in(500))
			grant(fuzz_draw(5000));
		if (fuzz_one_in(1000))
			evicted_before();
		if (entries == ENTRIES || (entries && fuzz_one_in(enters)))
			leave();
		else
			enter();
		if (i % 64 == 0)
			check();
	}
	while (entries)
		leave();
	check();
	return OPERATIONS;
}
