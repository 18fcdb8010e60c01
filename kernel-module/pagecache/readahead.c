// SPDX-License-Identifier: GPL-2.0-only
/*
 * The read-ahead window (Puma, section 3.3.1): the pages of a window that a
 * lender has become one request, those that are still in a buffer are copied,
 * and runs of misses go to the file system through a window of their own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/highmem.h>
#include <linux/slab.h>

#include "base/stats.h"
#include "borrower/breaker.h"
#include "borrower/catalog_pages.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"
#include "pagecache/fallback.h"
#include "pagecache/file.h"
#include "pagecache/filesystem.h"
#include "pagecache/readahead.h"
#include "pagecache/sequential.h"
#include "pagecache/split.h"
#include "pagecache/verify.h"
#include "uapi/wire.h"

struct tide_window {
	struct tide_file *file;
	const struct address_space_operations *orig;
	gfp_t gfp;
	unsigned int pages;		/* left in the window */
	enum tide_size size;		/* of the window */
	struct tide_split split;
	struct tide_get *open[TIDE_MAX_LENDERS];
	u8 asked, admitted;		/* the breaker's answers, bits by slot */
	bool disk;			/* of a stream, with pages that are not in the pool */
	u64 changes;			/* of the file, before the first look-up */
	bool ahead;			/* it is one of read-ahead, not a single folio */
};

/* Where is this folio? File locked. */
static int tide_folio_where(struct tide_file *file, struct folio *folio)
{
	long i, nr = folio_nr_pages(folio);
	int where = TIDE_BUFFERED;

	for (i = 0; i < nr && where != TIDE_NOWHERE; i++)
		where = tide_split_where(where, tide_object_where(&file->object, folio->index + i));
	return where;
}

static void tide_read_arrived(struct tide_get *get, unsigned int from, unsigned int to)
{
	struct tide_read *read = container_of(get, struct tide_read, get);
	struct folio *folio = page_folio(get->page[from].page);
	unsigned int copied = folio_nr_pages(folio) - (to - from);

	if (unlikely(copied))
		tide_get_copied(get, folio->index, copied, TIDE_GOT_BUFFER);
	tide_folio_came(folio, tide_file_of(get->object), read->orig, read->changes);
}

static void tide_read_fall_back(struct tide_get *get)
{
	tide_read_from_disk(container_of(get, struct tide_read, get));
}

static void tide_read_free(struct tide_get *get)
{
	kvfree(container_of(get, struct tide_read, get));
}

static const struct tide_get_ops tide_read_ops = {
	.arrived = tide_read_arrived,
	.fall_back = tide_read_fall_back,
	.free = tide_read_free,
};

/*
 * Copies what is in buffers; adds the other pages to @get. What is copied is a hit at
 * once if there are no others. File locked.
 */
static void tide_folio_collect(struct tide_file *file, struct folio *folio,
			       struct tide_get *get)
{
	long i, nr = folio_nr_pages(folio);
	int slot;

	tide_object_used(&file->object);
	for (i = 0; i < nr; i++) {
		struct page *page = folio_page(folio, i);
		pgoff_t index = folio->index + i;
		struct tide_buffer *buffer = tide_outgoing_find(&file->object, index);

		if (buffer) {
			copy_highpage(page, buffer->page);
			if (!get)
				tide_outgoing_hit(buffer);
			continue;
		}
		tide_get_add(get, page, index,
			     tide_object_version(&file->object, index, &slot));
	}
	if (get && get->count)
		get->page[get->count - 1].last = true;
}

static struct tide_get *tide_get_alloc(struct tide_window *w, int slot)
{
	struct tide_lender *lender = tide_lender_at(slot);
	struct tide_read *read;
	unsigned int most;

	if (!lender)
		return NULL;
	most = min_t(unsigned int, w->pages, READ_ONCE(lender->agreed.get));
	read = kvmalloc(struct_size(read, get.page, most), w->gfp);
	if (!read) {
		tide_count(gets_nomem);
		tide_lender_put(lender);
		return NULL;
	}
	tide_get_begin(&read->get, &tide_read_ops, lender, &w->file->object, w->size, most);
	read->orig = w->orig;
	read->changes = w->changes;
	read->ahead = w->ahead;
	return &read->get;
}

/* The breaker is asked once for a window, so that it is not cut to pieces. */
static bool tide_window_admitted(struct tide_window *w, struct tide_lender *lender,
				 int slot)
{
	if (!(w->asked & BIT(slot)) && tide_breaker_admits(lender, w->size))
		w->admitted |= BIT(slot);
	w->asked |= BIT(slot);
	return w->admitted & BIT(slot);
}

/* Are pages that this lender has read from disk all the same? */
static bool tide_window_skips(struct tide_window *w, int slot, long nr)
{
	struct tide_lender *lender;
	bool skips = true;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (!lender)
		;
	else if (w->disk && READ_ONCE(lender->filtering))
		atomic64_add(nr, &lender->stats.get_skipped_sequential);
	else if (!tide_window_admitted(w, lender, slot))
		atomic64_add(nr, &lender->stats.get_skipped);
	else
		skips = false;
	rcu_read_unlock();
	return skips;
}

/* The request to a lender that a folio is to be part of, or NULL. */
static struct tide_get *tide_window_request(struct tide_window *w, int slot,
					    enum tide_part part, long nr)
{
	struct tide_get *get;

	if (part == TIDE_PART_NEXT && w->open[slot]) {
		tide_get_submit(w->open[slot]);
		tide_split_sent(&w->split, slot);
		w->open[slot] = NULL;
	}
	if (!w->open[slot])
		w->open[slot] = tide_get_alloc(w, slot);
	get = w->open[slot];
	return get && get->count + nr <= get->most ? get : NULL;
}

/* How many pages the lender takes in a request; 0: it is gone. */
static unsigned int tide_window_most(int slot)
{
	struct tide_lender *lender;
	unsigned int most;

	if (slot < 0)
		return 0;
	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	most = lender ? READ_ONCE(lender->agreed.get) : 0;
	rcu_read_unlock();
	return most;
}

/* Is it empty, so that its pages may be filled? */
static bool tide_folio_wants(struct folio *folio)
{
	return !folio_test_uptodate(folio) && !folio_test_dirty(folio) &&
	       !folio_test_private(folio);
}

/* Where a folio is. One that is in buffers is copied at once, before they are given back. */
static int tide_folio_look(struct tide_file *file, struct folio *folio)
{
	unsigned long flags;
	int where;

	tide_object_lock(&file->object, flags);
	where = tide_folio_where(file, folio);
	if (where == TIDE_BUFFERED)
		tide_folio_collect(file, folio, NULL);
	tide_object_unlock(&file->object, flags);
	return where;
}

/*
 * Makes a folio part of a request if it is where it was; returns how many of its
 * pages are to come.
 */
static unsigned int tide_folio_join(struct tide_file *file, struct folio *folio, int where,
				    struct tide_get *get)
{
	unsigned int before = get->count;
	unsigned long flags;
	int now;

	folio_get(folio);
	tide_object_lock(&file->object, flags);
	now = tide_folio_where(file, folio);
	if (now == where)
		tide_folio_collect(file, folio, get);
	tide_object_unlock(&file->object, flags);
	if (now == where)
		return get->count - before;
	folio_put(folio);
	tide_lender_unasked(now, folio_nr_pages(folio));
	return 0;
}

/* Asks a lender for a folio; returns for how many of its pages. 0: it is one for the disk. */
static unsigned int tide_window_ask(struct tide_window *w, struct folio *folio, int where,
				    enum tide_part part)
{
	long nr = folio_nr_pages(folio);
	struct tide_get *get = NULL;

	if (part != TIDE_PART_DISK) {
		if (tide_window_skips(w, where, nr))
			return 0;
		get = tide_window_request(w, where, part, nr);
	}
	if (get)
		return tide_folio_join(w->file, folio, where, get);
	tide_lender_unasked(where, nr);
	return 0;
}

/*
 * Takes a folio of the window if the pool has it: it is then either complete
 * and unlocked already, or part of a request. Otherwise it is untouched.
 * Returns whether it was, and in @misses how many pages before it were not.
 */
static bool tide_window_take(struct tide_window *w, struct folio *folio,
			     unsigned long *misses)
{
	unsigned int asked = 0;
	enum tide_part part;
	int where;

	if (!tide_folio_wants(folio))
		return false;
	where = tide_folio_look(w->file, folio);
	part = tide_split_part(&w->split, where, folio_nr_pages(folio), tide_window_most(where));
	if (part != TIDE_PART_COPY) {
		asked = tide_window_ask(w, folio, where, part);
		if (!asked)
			return false;
	}
	*misses = tide_split_taken(&w->split, where, asked);
	if (part == TIDE_PART_COPY) {
		folio_get(folio);
		tide_folio_came(folio, w->file, w->orig, w->changes);
	}
	return true;
}

static void tide_window_submit(struct tide_window *w)
{
	int slot;

	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		struct tide_get *get = w->open[slot];

		if (!get)
			continue;
		if (get->count)
			tide_get_submit(get);
		else
			tide_get_free(get);
	}
}

/* Retires what the last readahead_folio() left behind as a batch. */
static void tide_rac_normalise(struct readahead_control *rac)
{
	rac->_index += rac->_batch_count;
	rac->_nr_pages -= rac->_batch_count;
	rac->_batch_count = 0;
}

static struct folio *tide_rac_peek(struct readahead_control *rac, unsigned long at)
{
	return xa_load(&rac->mapping->i_pages, rac->_index + at);
}

static void tide_disk_readahead(struct readahead_control *rac,
				const struct address_space_operations *orig)
{
	unsigned long nr = rac->_nr_pages;
	bool sampled = tide_disk_start(tide_rac_peek(rac, nr - 1), tide_size(nr));

	orig->readahead(rac);
	if (sampled)
		tide_disk_submitted();
}

/*
 * Pages of a known file are read from disk. What the file system leaves has not been
 * read: that is counted when the reader comes back.
 */
static void tide_missed_readahead(struct readahead_control *rac,
				  const struct address_space_operations *orig)
{
	unsigned long nr = rac->_nr_pages;

	tide_disk_readahead(rac, orig);
	tide_rac_normalise(rac);
	tide_count_pages(misses, nr - rac->_nr_pages);
}

/*
 * Passes the window's first @nr pages, which are all misses, to the file
 * system. What it leaves is unlocked as it is: the reader then comes back
 * through ->read_folio.
 */
static void tide_window_misses(struct readahead_control *rac, unsigned long nr,
			       const struct address_space_operations *orig)
{
	struct readahead_control sub = *rac;
	struct folio *folio;

	sub._nr_pages = nr;
	tide_missed_readahead(&sub, orig);
	while ((folio = readahead_folio(&sub)))
		folio_unlock(folio);
	rac->_index += nr;
	rac->_nr_pages -= nr;
}

/* Is some page of the window not in the pool? */
static bool tide_window_has_gap(struct tide_window *w, struct readahead_control *rac)
{
	unsigned long at = 0, flags;
	int where = TIDE_BUFFERED;

	while (at < rac->_nr_pages && where != TIDE_NOWHERE) {
		struct folio *folio = tide_rac_peek(rac, at);

		tide_object_lock(&w->file->object, flags);
		where = tide_folio_where(w->file, folio);
		tide_object_unlock(&w->file->object, flags);
		at += folio_nr_pages(folio);
	}
	return where == TIDE_NOWHERE;
}

/* A file's descriptor, to read by; one that has stopped being eligible has nothing in the pool. */
static struct tide_file *tide_window_file(struct address_space *mapping)
{
	struct tide_file *file = tide_file_find(mapping->host);

	if (!file || likely(tide_eligible(mapping)))
		return file;
	tide_file_drop(file, 0, ULONG_MAX);
	tide_file_put(file);
	return NULL;
}

/**
 * tide_get_readahead() - fill a read-ahead window from the pool and from disk
 * @rac: the window, as ->readahead gets it
 * @orig: the file system's own operations
 *
 * Context: process; never waits for the network.
 */
void tide_get_readahead(struct readahead_control *rac,
			const struct address_space_operations *orig)
{
	struct tide_window w = {
		.file = tide_window_file(rac->mapping),
		.orig = orig,
		.gfp = readahead_gfp_mask(rac->mapping) & ~__GFP_HIGHMEM & ~__GFP_MOVABLE,
		.pages = readahead_count(rac),
		.size = tide_size(readahead_count(rac)),
		.ahead = true,
	};
	unsigned long misses;
	bool stream;

	if (!w.file) {
		tide_disk_readahead(rac, orig);
		return;
	}
	w.changes = READ_ONCE(w.file->object.changes);
	tide_rac_normalise(rac);
	stream = tide_sequential_read(w.file, rac->_index, rac->_nr_pages);
	if (tide_object_has(&w.file->object, rac->_index, rac->_index + rac->_nr_pages - 1))
		w.disk = stream && tide_window_has_gap(&w, rac);
	else
		tide_split_missed(&w.split, rac->_nr_pages);
	while (w.split.misses < rac->_nr_pages) {
		struct folio *folio = tide_rac_peek(rac, w.split.misses);
		long nr = folio_nr_pages(folio);

		if (tide_window_take(&w, folio, &misses)) {
			if (misses)
				tide_window_misses(rac, misses, orig);
			folio_put(folio);	/* the window's reference */
			rac->_index += nr;
			rac->_nr_pages -= nr;
		} else {
			tide_split_missed(&w.split, nr);
		}
		w.pages -= min_t(unsigned int, nr, w.pages);
	}
	tide_window_submit(&w);
	if (w.split.misses)
		tide_missed_readahead(rac, orig);
	tide_file_put(w.file);
}

/**
 * tide_get_read_folio() - read one folio from the pool or from disk
 * @file: as ->read_folio gets it, may be NULL
 * @folio: locked, not uptodate
 * @orig: the file system's own operations
 *
 * Return: as ->read_folio; the folio is unlocked when it has been read.
 */
int tide_get_read_folio(struct file *file, struct folio *folio,
			const struct address_space_operations *orig)
{
	struct tide_window w = {
		.file = tide_window_file(folio->mapping),
		.orig = orig,
		.gfp = GFP_NOFS | __GFP_NORETRY | __GFP_NOWARN,
		.pages = folio_nr_pages(folio),
		.size = tide_size(folio_nr_pages(folio)),
	};
	unsigned long misses;
	bool taken, sampled;
	int ret;

	if (!w.file)
		return orig->read_folio(file, folio);
	w.changes = READ_ONCE(w.file->object.changes);
	tide_sequential_read(w.file, folio->index, w.pages);
	taken = tide_window_take(&w, folio, &misses);
	tide_window_submit(&w);
	tide_file_put(w.file);
	if (taken)
		return 0;
	tide_count_pages(misses, folio_nr_pages(folio));
	sampled = tide_disk_start(folio, w.size);
	ret = orig->read_folio(file, folio);
	if (sampled)
		tide_disk_submitted();
	return ret;
}
