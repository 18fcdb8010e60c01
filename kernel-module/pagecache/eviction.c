// SPDX-License-Identifier: GPL-2.0-only
/*
 * What becomes of a folio that is evicted: its pages are put, unless something
 * speaks against it. It is seen with interrupts off; nothing is allocated here
 * and nothing waits.
 */
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>

#include "base/broken.h"
#include "base/outcome.h"
#include "base/stats.h"
#include "base/trace.h"
#include "borrower/buffers.h"
#include "borrower/catalog_pages.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/send_pages.h"
#include "borrower/peer.h"
#include "pagecache/eviction.h"
#include "pagecache/file.h"
#include "pagecache/inflight.h"
#include "pagecache/mapping.h"
#include "pagecache/sequential.h"
#include "pagecache/superblock.h"

/*
 * The pages of a folio that the pool does not have yet, the file is locked. All
 * or none: a folio is got whole, so some of its pages would only take room.
 */
static bool tide_put_pages(struct tide_file *file, struct folio *folio,
			   struct tide_lender *lender)
{
	long i, nr = folio_nr_pages(folio), lacking = 0;
	struct tide_buffer *buffer;
	bool queued = false;
	LIST_HEAD(buffers);

	for (i = 0; i < nr; i++)
		lacking += tide_pool_lacks(&file->object, folio->index + i);
	if (!lacking)		/* most often, with NonInclusive */
		return false;
	if (!tide_buffers_take(lacking, &buffers)) {
		atomic64_add(lacking, &lender->stats.drop_nobuffer);
		trace_tidepool_drop(file->object.dev, file->object.number, folio->index, lacking,
				    TIDE_DROP_NOBUFFER);
		return false;
	}
	for (i = 0; i < nr; i++) {
		if (lacking < nr && !tide_pool_lacks(&file->object, folio->index + i))
			continue;
		buffer = list_first_entry(&buffers, struct tide_buffer, list);
		list_del_init(&buffer->list);
		queued |= tide_put_page(&file->object, lender, folio_page(folio, i),
					folio->index + i, buffer);
	}
	return queued;
}

/* Counts a folio that is not put at all. */
static void tide_put_refuse(struct folio *folio, s64 __percpu *counter,
			    enum tide_drop_reason reason)
{
	const struct inode *inode = folio->mapping->host;

	this_cpu_inc(*counter);
	trace_tidepool_drop(inode->i_sb->s_dev, inode->i_ino, folio->index,
			    folio_nr_pages(folio), reason);
}

/* A page that could not be written is clean, too, but not what the disk has. */
static bool tide_writes_failed(const struct address_space *mapping)
{
	return errseq_check((errseq_t *)&mapping->wb_err, 0) && !tide_broken(WRITE_ERRORS);
}

/* The descriptor of a file, @known or to be known from now on, with a reference taken. */
static struct tide_file *tide_put_file(struct tide_file *known, struct inode *inode)
{
	if (!known)
		return tide_file_find_or_reserve(inode);
	return tide_object_get(&known->object) ? known : NULL;
}

/*
 * There is a lender for the folio. Kept apart, for what is decided before is decided
 * for every page that is evicted, and without an instruction that locks the bus.
 */
static noinline void tide_put_folio_to(struct tide_lender *lender, struct tide_file *known,
				       struct folio *folio)
{
	pgoff_t first = folio->index, last = first + folio_nr_pages(folio) - 1;
	struct address_space *mapping = folio->mapping;
	struct tide_file *file = tide_put_file(known, mapping->host);
	bool queued = false;

	if (!file) {
		tide_put_refuse(folio, &tide_stats.drop_nofile, TIDE_DROP_NOFILE);
		return;
	}
	xa_lock(&file->object.pages);
	if (file->object.dead) {
		tide_put_refuse(folio, &tide_stats.drop_notready, TIDE_DROP_NOTREADY);
	} else if (tide_gate_closed(mapping, first, last)) {
		tide_put_refuse(folio, &tide_stats.drop_gate, TIDE_DROP_GATE);
		tide_object_drop_locked(&file->object, first, last);
	} else if (!folio_test_uptodate(folio) || folio_test_dirty(folio) ||
		   tide_writes_failed(mapping)) {
		tide_object_drop_locked(&file->object, first, last);
	} else {
		queued = tide_put_pages(file, folio, lender);
		tide_hook_mapping(file, mapping);
	}
	xa_unlock(&file->object.pages);
	if (queued)
		wake_up(&lender->put_wait);
	tide_file_put(file);
}

/**
 * tide_put_folio() - a clean folio is being reclaimed
 * @mapping: of an eligible file
 * @folio: frozen, its mapping still set
 *
 * Invariant 1: afterwards each page is in the pool in this version, or the
 * catalog has no entry of it.
 *
 * Context: the mapping's i_pages lock is held, interrupts are off.
 */
void tide_put_folio(struct address_space *mapping, struct folio *folio)
{
	struct tide_refusal why = { &tide_stats.drop_notready, TIDE_DROP_NOTREADY };
	pgoff_t first = folio->index, last = first + folio_nr_pages(folio) - 1;
	struct tide_lender *lender;
	struct tide_file *file;
	bool sequential;

	rcu_read_lock();
	file = tide_file_peek(mapping->host);
	sequential = file && tide_sequential_take(file, first, last);
	lender = tide_choose_lender(NULL, sequential ? TIDE_SEQUENTIAL : 0, &why);
	if (!lender)		/* entries that exist are still true */
		tide_put_refuse(folio, why.counter, why.reason);
	else if (!file && !tide_file_admitted(mapping->host))
		tide_put_refuse(folio, &tide_stats.drop_gate, TIDE_DROP_GATE);
	else
		tide_put_folio_to(lender, file, folio);
	rcu_read_unlock();
}
