// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sequential filter (Puma, section 3.3.3). A disk is good at long reads in
 * order, and a network no better. Pages that are read so are marked, and when
 * they are evicted a lender with the filter does not get them. The benefit is
 * twofold: the pool is not flooded by them, and the next time they are read
 * they are not in the pool, so that they come from disk again.
 *
 * A stream is known by the windows it reads: each begins where the one before
 * ended, or a little later where pages were cached. From TIDE_STREAM_PAGES on
 * its pages are marked, wherever they come from; any other read takes the marks
 * off. A window of a stream that the pool has whole comes from there all the
 * same; of one with a gap nothing does, for the disk has to move anyway.
 *
 * A mark is a bit, TIDE_MARKS of them in a value entry of an xarray. It lives
 * while its page is cached; without memory for it the page is put.
 */
#include <linux/slab.h>

#include "tidepool.h"

#define TIDE_STREAM_PAGES	64	/* read in order before it is a stream */
#define TIDE_STREAM_GAP		64	/* cached pages in between do not end it */
#define TIDE_STREAM_PAUSE	(10 * HZ)	/* nor does a pause */
#define TIDE_STREAMS		8	/* that a file remembers */
#define TIDE_MARKS		32
#define TIDE_MARKS_CHUNK	256	/* entries cleared with interrupts off */

struct tide_sequential {
	struct xarray pages;	/* marks; its lock guards the streams, too */
	struct tide_stream {
		pgoff_t next;
		unsigned long pages;
		unsigned long last;	/* jiffies */
	} stream[TIDE_STREAMS];
};

static atomic_t tide_filters = ATOMIC_INIT(0);	/* lenders with the filter */
static struct lock_class_key tide_sequential_lock_key;

/**
 * tide_filter_set() - switch the filter of a lender
 * @lender: the lender
 * @on: whether it is not to get what is read sequentially
 *
 * Context: process, under control.c's mutex.
 */
void tide_filter_set(struct tide_lender *lender, bool on)
{
	if (lender->config.sequential_filter == on)
		return;
	atomic_add(on ? 1 : -1, &tide_filters);
	WRITE_ONCE(lender->config.sequential_filter, on);
}

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

static struct tide_sequential *tide_sequential_get(struct tide_file *file)
{
	struct tide_sequential *s = READ_ONCE(file->sequential);

	if (s || !atomic_read(&tide_filters))
		return s;
	s = kzalloc(sizeof(*s), GFP_NOWAIT | __GFP_NOWARN);
	if (!s)
		return NULL;
	xa_init_flags(&s->pages, XA_FLAGS_LOCK_IRQ);
	lockdep_set_class(&s->pages.xa_lock, &tide_sequential_lock_key);
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
	if (!file->sequential)
		return;
	xa_destroy(&file->sequential->pages);
	kfree(file->sequential);
}

/* ------------------------------------------------------------------ */
/* streams							       */
/* ------------------------------------------------------------------ */

static bool tide_is_stream(const struct tide_stream *stream)
{
	return stream->pages >= TIDE_STREAM_PAGES;
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

/* Is this window part of a stream? Marks locked. */
static bool tide_stream_read(struct tide_sequential *s, pgoff_t index,
			     unsigned long nr)
{
	struct tide_stream *stream = NULL;
	bool is_stream = false;
	int i;

	for (i = 0; i < TIDE_STREAMS && !stream; i++)
		if (s->stream[i].pages && index >= s->stream[i].next &&
		    index - s->stream[i].next <= TIDE_STREAM_GAP)
			stream = &s->stream[i];
	if (stream) {
		is_stream = tide_is_stream(stream);
	} else {
		stream = tide_stream_oldest(s);
		stream->pages = 0;
	}
	stream->next = index + nr;
	stream->pages += nr;
	stream->last = jiffies;
	return is_stream;
}

/* ------------------------------------------------------------------ */
/* marks							       */
/* ------------------------------------------------------------------ */

/* The bits of the pages of [@first, @last] that entry @at holds. */
static unsigned long tide_mark_bits(unsigned long at, pgoff_t first, pgoff_t last)
{
	unsigned int from = at == first / TIDE_MARKS ? first % TIDE_MARKS : 0;
	unsigned int to = at == last / TIDE_MARKS ? last % TIDE_MARKS : TIDE_MARKS - 1;

	return GENMASK(to, from);
}

/* Clears a chunk at most; returns where to go on, or 0 when done. Marks locked. */
static pgoff_t tide_marks_clear(struct tide_sequential *s, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &s->pages, first / TIDE_MARKS);
	unsigned int n = 0;
	void *entry;

	xas_for_each(&xas, entry, last / TIDE_MARKS) {
		unsigned long bits = xa_to_value(entry) &
				     ~tide_mark_bits(xas.xa_index, first, last);

		xas_store(&xas, bits ? xa_mk_value(bits) : NULL);
		if (++n == TIDE_MARKS_CHUNK && xas.xa_index < last / TIDE_MARKS)
			return (xas.xa_index + 1) * TIDE_MARKS;
	}
	return 0;
}

static void tide_marks_set(struct tide_sequential *s, pgoff_t first, pgoff_t last)
{
	unsigned long at, flags;

	for (at = first / TIDE_MARKS; at <= last / TIDE_MARKS; at++) {
		unsigned long bits = tide_mark_bits(at, first, last);
		XA_STATE(xas, &s->pages, at);

		do {
			void *entry;

			xas_lock_irqsave(&xas, flags);
			entry = xas_load(&xas);
			xas_store(&xas, xa_mk_value((entry ? xa_to_value(entry) : 0) |
						    bits));
			xas_unlock_irqrestore(&xas, flags);
		} while (xas_nomem(&xas, GFP_NOWAIT | __GFP_NOWARN));
	}
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
	xa_lock_irqsave(&s->pages, flags);
	is_stream = tide_stream_read(s, index, nr) && atomic_read(&tide_filters);
	if (!is_stream)
		tide_marks_clear(s, index, index + nr - 1);
	xa_unlock_irqrestore(&s->pages, flags);
	if (is_stream)
		tide_marks_set(s, index, index + nr - 1);
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
		xa_lock_irqsave(&s->pages, flags);
		first = tide_marks_clear(s, first, last);
		xa_unlock_irqrestore(&s->pages, flags);
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
	void *entry;

	if (!s || xa_empty(&s->pages))
		return false;
	xa_lock_irqsave(&s->pages, flags);
	entry = xa_load(&s->pages, first / TIDE_MARKS);
	marked = entry && xa_to_value(entry) & BIT(first % TIDE_MARKS);
	tide_marks_clear(s, first, last);
	xa_unlock_irqrestore(&s->pages, flags);
	return marked;
}
