// SPDX-License-Identifier: GPL-2.0-only
/*
 * The catalog's memory, given back when the guest is short of it. An entry of
 * 8 bytes, or a file of some 150, stands for a page that would have to be read
 * from disk, and a guest that borrows is always reclaiming its page cache: so
 * nothing is given while free memory and page cache are there to be taken
 * instead, whatever asks for it (also /proc/sys/vm/drop_caches). Nor while there is
 * swap for what programs have: with a swap device in the pool an entry stands for one
 * of their pages, and page cache there is next to none. What other slabs might give
 * does not count: much of it is in use.
 */
#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#include "base/compat.h"
#include "base/stats.h"
#include "borrower/catalog.h"
#include "borrower/catalog_shrinker.h"
#include "borrower/catalog_table.h"

#define TIDE_SHORT_SHIFT	4	/* short: less than 1/16 of memory can be had otherwise */

static struct shrinker *tide_shrinker;

/* What could be swapped out, and there is room for. */
static unsigned long tide_memory_to_swap(void)
{
	unsigned long pages = global_node_page_state(NR_ACTIVE_ANON) +
			      global_node_page_state(NR_INACTIVE_ANON);

	return min_t(unsigned long, pages, max(get_nr_swap_pages(), 0L));
}

static bool tide_memory_short(void)
{
	return global_zone_page_state(NR_FREE_PAGES) +
	       global_node_page_state(NR_ACTIVE_FILE) +
	       global_node_page_state(NR_INACTIVE_FILE) + tide_memory_to_swap() <
	       totalram_pages() >> TIDE_SHORT_SHIFT;
}

static unsigned long tide_shrink_count(struct shrinker *shrinker,
				       struct shrink_control *sc)
{
	return tide_memory_short() ? tide_catalog_pages() + tide_catalog_objects() : 0;
}

static unsigned long tide_shrink_scan(struct shrinker *shrinker,
				      struct shrink_control *sc)
{
	unsigned long pages, freed = tide_catalog_shrink(sc->nr_to_scan, &pages);

	tide_count_pages(shrunk, pages);
	return freed ?: SHRINK_STOP;
}

int tide_shrinker_init(void)
{
	tide_shrinker = tide_shrinker_create("tidepool-catalog", tide_shrink_count,
					     tide_shrink_scan);
	return tide_shrinker ? 0 : -ENOMEM;
}

void tide_shrinker_exit(void)
{
	tide_shrinker_destroy(tide_shrinker);
}
