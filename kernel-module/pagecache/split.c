// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages of a read-ahead window go together: those of one lender in one request,
 * as far as it has room, and those between that are not in the pool in one read from
 * disk. A folio is got whole, from one lender. This decides and does nothing
 * (readahead.c does), so that it can be tested by itself (control/selftest.c).
 */
#include "base/broken.h"
#include "borrower/catalog_pages.h"
#include "pagecache/split.h"

/**
 * tide_split_where() - where is a folio, with one page more?
 * @where: its pages before; TIDE_BUFFERED when there are none
 * @page: where that page is
 */
int tide_split_where(int where, int page)
{
	if (page == TIDE_BUFFERED || page == where)
		return where;
	return where == TIDE_BUFFERED ? page : TIDE_NOWHERE;
}

/**
 * tide_split_part() - what becomes of the window's next folio?
 * @split: of the folios before it
 * @where: the folio is
 * @nr: its pages
 * @most: pages that the lender takes in a request
 */
enum tide_part tide_split_part(const struct tide_split *split, int where, unsigned long nr,
			       unsigned int most)
{
	if (where == TIDE_BUFFERED)
		return TIDE_PART_COPY;
	if (where == TIDE_NOWHERE || nr > most)
		return TIDE_PART_DISK;
	if (split->open[where] + nr > most && !tide_broken(SPLIT))
		return TIDE_PART_NEXT;
	return TIDE_PART_JOIN;
}

/**
 * tide_split_sent() - a lender's open request is on its way
 * @split: of the window
 * @slot: the lender's
 */
void tide_split_sent(struct tide_split *split, int slot)
{
	split->open[slot] = 0;
}

/**
 * tide_split_missed() - the next folio is one for the disk
 * @split: of the window
 * @nr: its pages
 */
void tide_split_missed(struct tide_split *split, unsigned long nr)
{
	split->misses += nr;
}

/**
 * tide_split_taken() - the next folio has come, or is part of a request
 * @split: of the window
 * @where: the folio is
 * @pages: how many of its pages the request asks for
 *
 * Return: the pages before it that go to the disk now.
 */
unsigned long tide_split_taken(struct tide_split *split, int where, unsigned int pages)
{
	unsigned long misses = split->misses;

	if (where >= 0)
		split->open[where] += pages;
	split->misses = 0;
	return misses;
}
