// SPDX-License-Identifier: GPL-2.0-only
/*
 * What did not come from the pool in time is read from disk, by the file system
 * and as it would have been read without the pool: a lost window is a window
 * again, and not as many reads as it has pages.
 */
#include <linux/blkdev.h>
#include <linux/sched/mm.h>

#include "base/stats.h"
#include "borrower/fetch.h"
#include "pagecache/fallback.h"
#include "pagecache/readahead.h"

/*
 * Where the folios end that are left and follow that of page @i in the file. Of these
 * @pages the request names all that were not in buffers.
 */
static unsigned int tide_run_end(const struct tide_read *read, unsigned int i,
				 unsigned long *pages)
{
	const struct tide_get *get = &read->get;
	pgoff_t index = page_folio(get->page[i].page)->index;
	struct folio *folio;

	*pages = 0;
	do {
		folio = page_folio(get->page[i].page);
		*pages += folio_nr_pages(folio);
		i = tide_get_next(get, i);
	} while (i < get->count && get->page[i].page &&
		 page_folio(get->page[i].page)->index == index + *pages);
	return i;
}

/*
 * Reads folios as a window of read-ahead. One that the file system leaves, or
 * cannot read, is unlocked as it is: the reader comes back through ->read_folio.
 */
static void tide_run_ahead(const struct tide_read *read, struct folio *first,
			   unsigned long pages)
{
	DEFINE_READAHEAD(rac, NULL, NULL, first->mapping, first->index);
	struct folio *folio;

	rac._nr_pages = pages;
	read->orig->readahead(&rac);	/* takes our references, as that of read-ahead */
	while ((folio = readahead_folio(&rac))) {
		pages -= folio_nr_pages(folio);
		folio_unlock(folio);
	}
	tide_count_pages(misses, pages);
}

static void tide_run_one(const struct tide_read *read, struct folio *folio)
{
	tide_count_pages(misses, folio_nr_pages(folio));
	read->orig->read_folio(NULL, folio);	/* unlocks it */
	folio_put(folio);
}

/**
 * tide_read_from_disk() - read from disk whatever is left of a request
 * @read: on no list
 *
 * Its folios are locked, and so are others perhaps that were to come with them:
 * what is allocated here must not wait for any of these.
 *
 * Context: process.
 */
void tide_read_from_disk(struct tide_read *read)
{
	unsigned int nofs = memalloc_nofs_save(), i = 0, first;
	struct tide_get *get = &read->get;
	unsigned long pages;
	struct blk_plug plug;

	blk_start_plug(&plug);
	while (i < get->count) {
		struct page *page = get->page[i].page;

		if (!page) {
			i++;
			continue;
		}
		first = i;
		i = tide_run_end(read, i, &pages);
		if (pages > i - first)
			tide_get_copied(get, get->page[first].index, pages - (i - first),
					TIDE_GOT_INCOMPLETE);
		if (read->ahead)
			tide_run_ahead(read, page_folio(page), pages);
		else
			tide_run_one(read, page_folio(page));
	}
	blk_finish_plug(&plug);
	memalloc_nofs_restore(nofs);
}
