// SPDX-License-Identifier: GPL-2.0-only
/*
 * Evictions, instantiations and dirtying, as the kernel's tracepoints tell of them.
 * Without a peer they serve ghost mode only.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/tracepoint.h>

#include "base/broken.h"
#include "borrower/catalog_pages.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"
#include "borrower/peer.h"
#include "lender/shelf.h"
#include "pagecache/eviction.h"
#include "pagecache/file.h"
#include "pagecache/filesystem.h"
#include "pagecache/ghost.h"
#include "pagecache/mapping.h"
#include "pagecache/sequential.h"
#include "pagecache/superblock.h"
#include "pagecache/tracepoints.h"

DEFINE_STATIC_KEY_FALSE(tide_has_peers);

/*
 * These are called for every page that comes or goes, most of which are of no
 * interest: that has to be found out at once. A peer is interested in all of
 * them, ghost mode in few; tide_on_…() only ask, and keep no stack frame for it,
 * nor room for a tracer.
 * The kernel's own users of these tracepoints, too, take it for granted that a
 * folio that comes or goes has a mapping, and the mapping a host.
 */

/* Without a peer the first is a jump that is not taken. */
static __always_inline bool tide_matters(struct address_space *mapping,
					 struct folio *folio)
{
	return tide_serves_peers() || unlikely(tide_ghost_follows(mapping, folio));
}

static void tide_reclaimed(struct address_space *mapping, struct folio *folio)
{
	if (tide_eligible(mapping))
		tide_put_folio(mapping, folio);
	else if (!tide_watched(mapping))
		tide_name_refused(mapping);
}

static noinline void tide_deleted(struct address_space *mapping, struct folio *folio)
{
	if (tide_shelf_owns(mapping)) {
		tide_shelf_deleted(mapping, folio);
		return;
	}
	if (folio_ref_count(folio) || mapping_exiting(mapping))
		return;
	if (tide_ghost_is_on())
		tide_ghost_evicted(mapping, folio);
	if (atomic_read(&tide_lenders_ready))
		tide_reclaimed(mapping, folio);
}

/* The mapping's i_pages lock is held, interrupts are off. */
static void notrace tide_on_delete(void *data, struct folio *folio)
{
	if (tide_matters(folio->mapping, folio))
		tide_deleted(folio->mapping, folio);
}

/*
 * An inode came back into memory and reads its first page again, or reads of
 * it are to be watched from the first.
 */
static void tide_reads_again(struct address_space *mapping)
{
	struct tide_file *file;
	unsigned long flags;

	if (tide_mapping_hooked(mapping) ||
	    mapping_exiting(mapping) || !tide_watched(mapping))
		return;
	file = tide_catalog_objects() ? tide_file_find(mapping->host) : NULL;
	if (!file && tide_file_admitted(mapping->host) &&
	    tide_sequential_wants(mapping->host) && tide_eligible(mapping))
		file = tide_file_find_or_reserve(mapping->host);
	if (!file)
		return;
	tide_object_lock(&file->object, flags);
	tide_hook_mapping(file, mapping);
	tide_object_unlock(&file->object, flags);
	tide_file_put(file);
}

static noinline void tide_added(struct address_space *mapping, struct folio *folio)
{
	if (tide_ghost_is_on())
		tide_ghost_added(mapping, folio);
	if (tide_borrows())
		tide_reads_again(mapping);
}

static void notrace tide_on_add(void *data, struct folio *folio)
{
	if (tide_matters(folio->mapping, folio))
		tide_added(folio->mapping, folio);
}

static void tide_drop_folio(struct address_space *mapping, struct folio *folio)
{
	struct tide_file *file;
	unsigned long flags;

	if (tide_broken(DIRTY) || !tide_watched(mapping))
		return;
	file = tide_file_find(mapping->host);
	if (!file)
		return;
	tide_object_lock(&file->object, flags);
	tide_object_drop_locked(&file->object, folio->index,
				folio->index + folio_nr_pages(folio) - 1);
	tide_object_unlock(&file->object, flags);
	tide_file_put(file);
}

static noinline void tide_dirtied(struct address_space *mapping, struct folio *folio)
{
	if (tide_ghost_is_on())
		tide_ghost_dirtied(mapping, folio);
	if (tide_catalog_objects())
		tide_drop_folio(mapping, folio);
}

static void notrace tide_on_dirty(void *data, struct folio *folio,
				  struct address_space *mapping)
{
	if (mapping && tide_matters(mapping, folio))
		tide_dirtied(mapping, folio);
}

static struct tide_probe {
	const char *name;
	void *fn;
	struct tracepoint *tp;
	bool on;
} tide_probes[] = {
	{ "writeback_dirty_folio", tide_on_dirty },
	{ "mm_filemap_add_to_page_cache", tide_on_add },
	{ "mm_filemap_delete_from_page_cache", tide_on_delete },
};

static void tide_match_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(tide_probes); i++)
		if (!strcmp(tp->name, tide_probes[i].name))
			tide_probes[i].tp = tp;
}

/**
 * tide_probes_install() - see what is evicted, added and dirtied from here on
 *
 * Context: process.
 * Return: 0, or a negative errno with a log line that names what is missing, and then
 * tide_probes_remove() is to follow.
 */
int tide_probes_install(void)
{
	int i, err;

	for_each_kernel_tracepoint(tide_match_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(tide_probes); i++) {
		struct tide_probe *probe = &tide_probes[i];

		err = probe->tp ? tracepoint_probe_register(probe->tp, probe->fn, NULL)
				: -EOPNOTSUPP;
		if (err) {
			pr_err("this kernel has no usable tracepoint %s\n", probe->name);
			return err;
		}
		probe->on = true;
	}
	return 0;
}

/**
 * tide_probes_remove() - see nothing of it any more
 *
 * Context: process. What has been seen has been dealt with when this returns.
 */
void tide_probes_remove(void)
{
	int i;

	for (i = ARRAY_SIZE(tide_probes); i-- > 0;) {
		struct tide_probe *probe = &tide_probes[i];

		if (probe->on)
			tracepoint_probe_unregister(probe->tp, probe->fn, NULL);
		probe->on = false;
	}
	tracepoint_synchronize_unregister();
}
