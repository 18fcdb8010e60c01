// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sequential filter (Puma, section 3.3.3). A disk is good at long reads in
 * order, and a network no better. Pages that are read so are marked, and when
 * they are evicted a lender with the filter does not get them. The benefit is
 * twofold: the pool is not flooded by them, and the next time they are read
 * they are not in the pool, so that they come from disk again.
 *
 * A stream is known by the windows it reads: each begins where the one before
 * ended, or a little later where pages were cached. Where memory is short one is
 * cut off, and its rest is read after the next. From TIDE_STREAM_PAGES on
 * its pages are marked, wherever they come from; any other read takes the marks
 * off. A window of a stream that the pool has whole comes from there all the
 * same; of one with a gap nothing does, for the disk has to move anyway.
 *
 * A mark is a bit on a sheet, and an xarray has the sheets. It lives while its
 * page is cached, and the sheet while it has a mark; without memory for a sheet
 * its pages are put.
 */
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "base/broken.h"
#include "borrower/filter.h"
#include "borrower/peer.h"
#include "pagecache/file.h"
#include "pagecache/sequential.h"

#define TIDE_STREAM_PAGES	64	/* read in order before it is a stream */
#define TIDE_STREAM_GAP		64	/* cached pages in between do not end it */
#define TIDE_STREAM_PAUSE	(10 * HZ)	/* nor does a pause */
#define TIDE_STREAM_RECENT	HZ	/* a window that was cut off is missed so soon */
#define TIDE_STREAMS		8	/* that a file remembers */
#define TIDE_MARKS		2048	/* on a sheet: no folio has more pages */
#define TIDE_SHEETS_CHUNK	16	/* cleared with interrupts off */

/* The marks of pages that lie side by side. */
struct tide_sheet {
	DECLARE_BITMAP(mark, TIDE_MARKS);
};

struct tide_sequential {
	struct xarray sheets;	/* its lock guards the streams, too */
	struct tide_stream {
		pgoff_t next;
		unsigned long pages;
		unsigned long window;	/* pages of the longest */
		unsigned long last;	/* jiffies */
	} stream[TIDE_STREAMS];
};

static struct lock_class_key tide_sequential_lock_key;

/**
 * tide_sequential_wants() - are reads of this file to be watched from the first?
 * @inode: of an eligible file
 *
 * A file comes to us when it first loses a page; with the filter that is too
 * late to see the first stream. Files that cannot have one are left alone.
 */
bool tide_sequential_wants(struct inode *inode)
{
	return atomic_read(&tide_filters) && atomic_read(&tide_lenders_ready) &&
	       i_size_read(inode) > (TIDE_STREAM_PAGES << PAGE_SHIFT);
}

/* Its reader is asking, so that its inode stays. */
static bool tide_may_stream(const struct tide_file *file)
{
	const struct address_space *mapping = READ_ONCE(file->mapping);

	return mapping && i_size_read(mapping->host) > (TIDE_STREAM_PAGES << PAGE_SHIFT);
}

static struct tide_sequential *tide_sequential_get(struct tide_file *file)
{
	struct tide_sequential *s = READ_ONCE(file->sequential);

	if (s || !atomic_read(&tide_filters) || !tide_may_stream(file))
		return s;
	s = kzalloc(sizeof(*s), GFP_NOWAIT | __GFP_NOWARN);
	if (!s)
		return NULL;
	xa_init_flags(&s->sheets, XA_FLAGS_LOCK_IRQ);
	lockdep_set_class(&s->sheets.xa_lock, &tide_sequential_lock_key);
	if (cmpxchg(&file->sequential, NULL, s)) {
		kfree(s);
		s = READ_ONCE(file->sequential);
	}
	return s;
}

/**
 * tide_sequential_free() - forget all of a file
 * @file: that nobody refers to any more
 */
void tide_sequential_free(struct tide_file *file)
{
	struct tide_sequential *s = file->sequential;
	struct tide_sheet *sheet;
	unsigned long at;

	if (!s)
		return;
	xa_for_each(&s->sheets, at, sheet)
		kfree(sheet);
	xa_destroy(&s->sheets);
	kfree(s);
}

/* ------------------------------------------------------------------ */
/* streams							       */
/* ------------------------------------------------------------------ */

static bool tide_is_stream(const struct tide_stream *stream)
{
	return stream->pages >= TIDE_STREAM_PAGES;
}

/* May a window that begins at @index be part of this stream? */
static bool tide_stream_continues(const struct tide_stream *stream, pgoff_t index)
{
	unsigned long back = 0, ahead = TIDE_STREAM_GAP;

	if (tide_is_stream(stream) && stream->pages > stream->window &&
	    time_before(jiffies, stream->last + TIDE_STREAM_RECENT)) {
		back = 2 * stream->window;
		ahead = max(ahead, stream->window);
	}
	return stream->pages && index + back >= stream->next &&
	       index <= stream->next + ahead;
}

/* The one that was idle longest; streams are kept a little longer. */
static struct tide_stream *tide_stream_oldest(struct tide_sequential *s)
{
	struct tide_stream *oldest = NULL;
	unsigned long least = 0;
	int i;

	for (i = 0; i < TIDE_STREAMS; i++) {
		struct tide_stream *stream = &s->stream[i];
		unsigned long age = stream->last;

		if (tide_is_stream(stream))
			age += TIDE_STREAM_PAUSE;
		if (!oldest || time_before(age, least)) {
			oldest = stream;
			least = age;
		}
	}
	return oldest;
}

/* Is this window part of a stream? Sheets locked. */
static bool tide_stream_read(struct tide_sequential *s, pgoff_t index,
			     unsigned long nr)
{
	struct tide_stream *stream = NULL;
	bool is_stream = false;
	int i;

	for (i = 0; i < TIDE_STREAMS && !stream; i++)
		if (tide_stream_continues(&s->stream[i], index))
			stream = &s->stream[i];
	if (stream) {
		is_stream = tide_is_stream(stream);
	} else {
		stream = tide_stream_oldest(s);
		*stream = (struct tide_stream) { };
	}
	stream->pages += nr;
	stream->window = max(stream->window, nr);
	if (stream->next < index + nr) {
		stream->next = index + nr;
		stream->last = jiffies;
	}
	return is_stream;
}

/* ------------------------------------------------------------------ */
/* marks							       */
/* ------------------------------------------------------------------ */

/* Takes the marks of a range off the sheet at the state's index, which goes with its last one. */
static void tide_sheet_clear(struct xa_state *xas, struct tide_sheet *sheet,
			     pgoff_t first, pgoff_t last)
{
	pgoff_t base = xas->xa_index * TIDE_MARKS;
	unsigned int from = first > base ? first - base : 0;
	unsigned int to = min_t(pgoff_t, last - base, TIDE_MARKS - 1);

	bitmap_clear(sheet->mark, from, to - from + 1);
	/* From the end: streams are mostly evicted as they were read. */
	if (find_last_bit(sheet->mark, TIDE_MARKS) < TIDE_MARKS)
		return;
	xas_store(xas, NULL);
	kfree(sheet);
}

/* Clears a chunk at most; returns where to go on, or 0 when done. Sheets locked. */
static pgoff_t tide_marks_clear(struct tide_sequential *s, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &s->sheets, first / TIDE_MARKS);
	struct tide_sheet *sheet;
	unsigned int n = 0;

	xas_for_each(&xas, sheet, last / TIDE_MARKS) {
		tide_sheet_clear(&xas, sheet, first, last);
		if (++n == TIDE_SHEETS_CHUNK && xas.xa_index < last / TIDE_MARKS)
			return (xas.xa_index + 1) * TIDE_MARKS;
	}
	return 0;
}

/* The sheet at the state's index, made if need be; NULL: no memory. Sheets locked. */
static struct tide_sheet *tide_sheet_make(struct xa_state *xas)
{
	struct tide_sheet *sheet = xas_load(xas);

	if (sheet)
		return sheet;
	sheet = kzalloc(sizeof(*sheet), GFP_NOWAIT | __GFP_NOWARN);
	if (!sheet)
		return NULL;
	xas_store(xas, sheet);
	if (!xas_error(xas))
		return sheet;
	kfree(sheet);
	return NULL;
}

static void tide_marks_set(struct tide_sequential *s, pgoff_t first, pgoff_t last)
{
	while (first <= last) {
		XA_STATE(xas, &s->sheets, first / TIDE_MARKS);
		unsigned int from = first % TIDE_MARKS;
		unsigned int nr = min_t(pgoff_t, last - first + 1, TIDE_MARKS - from);
		struct tide_sheet *sheet = tide_sheet_make(&xas);

		if (sheet)
			bitmap_set(sheet->mark, from, nr);
		first += nr;
	}
}

/* Was this folio, which is on one sheet, marked? Takes its marks off. Sheets locked. */
static bool tide_marks_take(struct tide_sequential *s, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &s->sheets, first / TIDE_MARKS);
	struct tide_sheet *sheet = xas_load(&xas);
	bool marked = sheet && test_bit(first % TIDE_MARKS, sheet->mark);

	BUILD_BUG_ON(TIDE_MARKS < 1 << MAX_PAGECACHE_ORDER);
	if (sheet)
		tide_sheet_clear(&xas, sheet, first, last);
	return marked;
}

/**
 * tide_sequential_read() - pages are about to be read
 * @file: the descriptor
 * @index: of the first page
 * @nr: how many
 *
 * Marks them, or takes their marks off.
 *
 * Context: process; allocates without waiting.
 * Return: whether they are part of a stream.
 */
bool tide_sequential_read(struct tide_file *file, pgoff_t index, unsigned long nr)
{
	struct tide_sequential *s = tide_sequential_get(file);
	unsigned long flags;
	bool is_stream;

	if (!s || !nr || tide_broken(SEQUENTIAL))
		return false;
	xa_lock_irqsave(&s->sheets, flags);
	is_stream = tide_stream_read(s, index, nr) && atomic_read(&tide_filters);
	if (is_stream)
		tide_marks_set(s, index, index + nr - 1);
	else
		tide_marks_clear(s, index, index + nr - 1);
	xa_unlock_irqrestore(&s->sheets, flags);
	return is_stream;
}

/**
 * tide_sequential_drop() - take the marks off
 * @file: the descriptor
 * @first: first page index
 * @last: last page index
 *
 * Context: any.
 */
void tide_sequential_drop(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	struct tide_sequential *s = READ_ONCE(file->sequential);
	unsigned long flags;

	if (!s)
		return;
	do {
		xa_lock_irqsave(&s->sheets, flags);
		first = tide_marks_clear(s, first, last);
		xa_unlock_irqrestore(&s->sheets, flags);
	} while (first);
}

/**
 * tide_sequential_take() - a folio is evicted: was it read sequentially?
 * @file: the descriptor
 * @first: first page index
 * @last: last page index
 *
 * Its marks are gone afterwards.
 *
 * Context: any; allocates nothing.
 */
bool tide_sequential_take(struct tide_file *file, pgoff_t first, pgoff_t last)
{
	struct tide_sequential *s = READ_ONCE(file->sequential);
	unsigned long flags;
	bool marked;

	if (!s || xa_empty(&s->sheets))
		return false;
	xa_lock_irqsave(&s->sheets, flags);
	marked = tide_marks_take(s, first, last);
	xa_unlock_irqrestore(&s->sheets, flags);
	return marked;
}
