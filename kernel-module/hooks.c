// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the borrower's side looks into the kernel. Puma patched the kernel and
 * used cleancache (gone since 5.17); this needs a stock one:
 *
 *	eviction	tracepoint mm_filemap_delete_from_page_cache
 *	instantiation	tracepoint mm_filemap_add_to_page_cache
 *	dirtying	tracepoint writeback_dirty_folio
 *	truncation, hole punching, inode eviction
 *			ftrace wrapper of truncate_inode_pages_range()
 *	invalidation	ftrace wrapper of invalidate_inode_pages2_range()
 *	direct writes	ftrace wrapper of __iomap_dio_rw()
 *	unmount		ftrace wrapper of generic_shutdown_super()
 *	btrfs only: is the page cache empty where it is going to change extents?
 *			ftrace wrappers of filemap_range_has_page(),
 *			filemap_get_folios() and, where that passes over an
 *			empty cache, filemap_invalidate_inode()
 *	miss		a copy of the inode's a_ops with ->readahead and
 *			->read_folio replaced
 *
 * The wrappers are ftrace's, not kprobes: kprobes can be switched off behind
 * the module's back, and then stale pages are served. FTRACE_OPS_FL_PERMANENT
 * makes the sysctl that would switch these off fail with EBUSY. A copy of such a
 * function that the compiler made for some of its callers would not be wrapped;
 * test_control.py looks for one in each kernel.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/iomap.h>
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/tracepoint.h>
#include <linux/uio.h>

#include "tidepool.h"

DEFINE_STATIC_SRCU(tide_srcu);		/* tasks inside a replaced a_ops call */
static bool tide_removing;

/* ------------------------------------------------------------------ */
/* wrapped a_ops						       */
/* ------------------------------------------------------------------ */

/*
 * One copy for each a_ops table met. Callers such as generic_perform_write()
 * keep the pointer across sleeps, so a copy that was ever used is never freed:
 * unloading turns it into a plain copy of the original and leaves it behind.
 * They are few (one for each file system and journalling mode) and small;
 * kmemleak is told that they are meant to stay.
 */
struct tide_wrapped {
	struct address_space_operations ops;
	const struct address_space_operations *orig;
};

#define TIDE_WRAPPED_MAX	16

static struct tide_wrapped *tide_wrapped[TIDE_WRAPPED_MAX];
static unsigned int tide_wrapped_used;
static DEFINE_SPINLOCK(tide_wrapped_lock);	/* nests inside a file's lock */

static const struct address_space_operations *
tide_original(const struct address_space_operations *ops)
{
	/* pairs with tide_wrap(): the copies below the count are complete */
	unsigned int i, used = smp_load_acquire(&tide_wrapped_used);

	for (i = 0; i < used; i++)
		if (&tide_wrapped[i]->ops == ops)
			return tide_wrapped[i]->orig;
	return ops;	/* put back meanwhile */
}

static void tide_readahead(struct readahead_control *rac)
{
	int idx = srcu_read_lock(&tide_srcu);

	tide_get_readahead(rac, tide_original(READ_ONCE(rac->mapping->a_ops)));
	srcu_read_unlock(&tide_srcu, idx);
}

static int tide_read_folio(struct file *file, struct folio *folio)
{
	int idx = srcu_read_lock(&tide_srcu), ret;

	ret = tide_get_read_folio(file, folio,
				  tide_original(READ_ONCE(folio->mapping->a_ops)));
	srcu_read_unlock(&tide_srcu, idx);
	return ret;
}

/* The wrapped copy of a table, made from the preallocated ones if need be. */
static struct tide_wrapped *tide_wrap(const struct address_space_operations *orig)
{
	struct tide_wrapped *wrapped = NULL;
	unsigned int i;

	spin_lock(&tide_wrapped_lock);
	for (i = 0; i < tide_wrapped_used; i++) {
		if (tide_wrapped[i]->orig == orig) {
			wrapped = tide_wrapped[i];
			goto out;
		}
	}
	if (i == TIDE_WRAPPED_MAX || !orig->readahead || !orig->read_folio)
		goto out;
	wrapped = tide_wrapped[i];
	wrapped->ops = *orig;
	wrapped->ops.readahead = tide_readahead;
	wrapped->ops.read_folio = tide_read_folio;
	wrapped->orig = orig;
	/* pairs with tide_original() */
	smp_store_release(&tide_wrapped_used, i + 1);
out:
	spin_unlock(&tide_wrapped_lock);
	return wrapped;
}

/**
 * tide_hook_mapping() - have misses of a file come to us
 * @file: the descriptor, locked
 * @mapping: of its in-memory inode
 *
 * Context: any; allocates nothing.
 */
void tide_hook_mapping(struct tide_file *file, struct address_space *mapping)
{
	struct tide_wrapped *wrapped;

	if (file->mapping == mapping || file->dead || READ_ONCE(tide_removing))
		return;
	if (mapping->a_ops->readahead != tide_readahead) {
		wrapped = tide_wrap(mapping->a_ops);
		if (!wrapped)
			return;
		WRITE_ONCE(mapping->a_ops, &wrapped->ops);
	}
	WRITE_ONCE(file->mapping, mapping);
}

/**
 * tide_unhook_mapping() - give a file's a_ops back
 * @file: the descriptor, locked
 */
void tide_unhook_mapping(struct tide_file *file)
{
	if (!file->mapping)
		return;
	WRITE_ONCE(file->mapping->a_ops, tide_original(file->mapping->a_ops));
	WRITE_ONCE(file->mapping, NULL);
}

/* ------------------------------------------------------------------ */
/* tracepoints							       */
/* ------------------------------------------------------------------ */

static void tide_on_reclaim(struct address_space *mapping, struct folio *folio)
{
	if (!tide_eligible(mapping)) {
		tide_name_refused(mapping);
		return;
	}
	if (tide_ghost_is_on())
		tide_ghost_evicted(mapping, folio);
	if (atomic_read(&tide_lenders_ready))
		tide_put_folio(mapping, folio);
}

/* The mapping's i_pages lock is held, interrupts are off. */
static void tide_on_delete(void *data, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;

	if (!mapping)
		return;
	if (tide_store_owns(mapping)) {
		tide_store_deleted(mapping, folio);
		return;
	}
	if (!folio_ref_count(folio) && !mapping_exiting(mapping) &&
	    (tide_ghost_is_on() || atomic_read(&tide_lenders_ready)) &&
	    !READ_ONCE(tide_removing))
		tide_on_reclaim(mapping, folio);
}

/*
 * An inode came back into memory and reads its first page again, or reads of
 * it are to be watched from the first.
 */
static void tide_on_add(void *data, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	struct tide_file *file;
	unsigned long flags;

	if (!mapping || !tide_eligible(mapping))
		return;
	if (tide_ghost_is_on())
		tide_ghost_added(mapping, folio);
	if (mapping->a_ops->readahead == tide_readahead || mapping_exiting(mapping))
		return;
	file = tide_catalog_files() ? tide_file_find(mapping->host) : NULL;
	if (!file && tide_sequential_wants(mapping->host))
		file = tide_file_find_or_reserve(mapping->host);
	if (!file)
		return;
	tide_file_lock(file, flags);
	tide_hook_mapping(file, mapping);
	tide_file_unlock(file, flags);
	tide_file_put(file);
}

static void tide_on_dirty(void *data, struct folio *folio,
			  struct address_space *mapping)
{
	struct tide_file *file;
	unsigned long flags;

	if (tide_ghost_is_on() && mapping && tide_eligible(mapping))
		tide_ghost_drop(mapping->host, folio->index,
				folio->index + folio_nr_pages(folio) - 1);
	if (tide_broken(DIRTY) || !mapping ||
	    !tide_catalog_files() || !tide_eligible(mapping))
		return;
	file = tide_file_find(mapping->host);
	if (!file)
		return;
	tide_file_lock(file, flags);
	tide_file_drop_locked(file, folio->index,
			      folio->index + folio_nr_pages(folio) - 1);
	tide_file_unlock(file, flags);
	tide_file_put(file);
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

static int tide_probes_install(void)
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

static void tide_probes_remove(void)
{
	int i;

	for (i = ARRAY_SIZE(tide_probes); i-- > 0;)
		if (tide_probes[i].on)
			tracepoint_probe_unregister(tide_probes[i].tp,
						    tide_probes[i].fn, NULL);
	tracepoint_synchronize_unregister();
}

/* ------------------------------------------------------------------ */
/* wrapped functions						       */
/* ------------------------------------------------------------------ */

static void tide_drop_range(struct address_space *mapping, pgoff_t first, pgoff_t last)
{
	struct tide_file *file = tide_file_find(mapping->host);

	if (tide_ghost_is_on())
		tide_ghost_drop(mapping->host, first, last);
	if (!file)
		return;
	tide_file_drop(file, first, last);
	tide_file_put(file);
}

/*
 * The inode leaves memory. Its file is forgotten if it is deleted; otherwise
 * its pages stay in the pool, for the inode may come back unchanged.
 */
static void tide_inode_evicted(struct address_space *mapping)
{
	struct inode *inode = mapping->host;
	struct tide_file *file = tide_file_find(inode);
	unsigned long flags;

	if (tide_ghost_is_on() && !inode->i_nlink)
		tide_ghost_drop(inode, 0, ULONG_MAX);
	if (!file)
		return;
	tide_file_lock(file, flags);
	if (file->mapping == mapping)
		tide_unhook_mapping(file);
	tide_file_unlock(file, flags);
	tide_sequential_drop(file, 0, ULONG_MAX);
	if (!inode->i_nlink || !(inode->i_sb->s_flags & SB_ACTIVE) ||
	    file->generation != inode->i_generation || tide_file_empty(file))
		tide_file_kill(file);
	tide_file_put(file);
}

static void tide_truncate_inode_pages_range(struct address_space *mapping,
					    loff_t start, loff_t end)
{
	pgoff_t first = start >> PAGE_SHIFT;
	pgoff_t last = end == -1 ? ULONG_MAX : end >> PAGE_SHIFT;
	bool exiting = mapping_exiting(mapping);
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_TRUNCATE, mapping, mapping,
			   first, last);
	if (exiting) {
		tide_inode_evicted(mapping);
		tide_writes_forget(mapping);
	} else {
		tide_drop_range(mapping, first, last);
	}
	if (tide_broken(TRUNCATE_RETURN))
		section.first = ULONG_MAX;	/* covers nothing */
	truncate_inode_pages_range(mapping, start, end);
	if (!exiting && !tide_broken(TRUNCATE_RETURN))
		tide_drop_range(mapping, first, last);
	tide_section_leave(&section);
}

static int tide_invalidate_inode_pages2_range(struct address_space *mapping,
					      pgoff_t first, pgoff_t last)
{
	struct tide_section section;
	int ret;

	if (tide_broken(INVALIDATE)) {
		tide_section_enter(&section, TIDE_SECTION_INVALIDATE, mapping,
				   mapping, ULONG_MAX, 0);
		ret = invalidate_inode_pages2_range(mapping, first, last);
		tide_section_leave(&section);
		return ret;
	}
	tide_section_enter(&section, TIDE_SECTION_INVALIDATE, mapping, mapping,
			   first, last);
	tide_drop_range(mapping, first, last);
	ret = invalidate_inode_pages2_range(mapping, first, last);
	tide_drop_range(mapping, first, last);
	tide_section_leave(&section);
	return ret;
}

/*
 * The write may go on after the call has returned; from then on what
 * tide_section_enter_write() noted keeps the gate closed, until the completion has
 * invalidated the page cache and lowered the inode's count of direct I/O.
 */
static struct iomap_dio *
tide_iomap_dio_rw(struct kiocb *iocb, struct iov_iter *iter,
		  const struct iomap_ops *ops, const struct iomap_dio_ops *dops,
		  unsigned int dio_flags, void *private, size_t done_before)
{
	struct address_space *mapping = iocb->ki_filp->f_mapping;
	pgoff_t first = iocb->ki_pos >> PAGE_SHIFT;
	pgoff_t last = (iocb->ki_pos + max_t(size_t, iov_iter_count(iter), 1) - 1)
		       >> PAGE_SHIFT;
	struct tide_section section;
	struct iomap_dio *dio;

	if (tide_broken(DIRECT_IO)) {
		tide_section_enter(&section, TIDE_SECTION_DIRECT_IO, mapping,
				   iocb, ULONG_MAX, 0);
		dio = __iomap_dio_rw(iocb, iter, ops, dops, dio_flags, private,
				     done_before);
		tide_section_leave(&section);
		return dio;
	}
	tide_section_enter_write(&section, mapping, iocb, first, last);
	tide_drop_range(mapping, first, last);
	dio = __iomap_dio_rw(iocb, iter, ops, dops, dio_flags, private, done_before);
	tide_section_leave(&section);
	return dio;
}

/*
 * A file system that holds its own lock on a range asks whether the page cache
 * is empty there, and if so changes the extents. From before the question until
 * the answer no page gets into the pool, and those that are in it are dropped:
 * one that a reader took out of it before is in the page cache by now, and is
 * seen. Nothing can be read from disk until the file system unlocks the range.
 */
static bool tide_filemap_range_has_page(struct address_space *mapping,
					loff_t start, loff_t end)
{
	pgoff_t first = start >> PAGE_SHIFT, last = end >> PAGE_SHIFT;
	struct tide_section section;
	bool ret;

	tide_section_enter(&section, TIDE_SECTION_HAS_PAGE, mapping, mapping,
			   first, last);
	tide_drop_range(mapping, first, last);
	ret = filemap_range_has_page(mapping, start, end);
	tide_section_leave(&section);
	return ret;
}

static unsigned int tide_filemap_get_folios(struct address_space *mapping,
					    pgoff_t *start, pgoff_t end,
					    struct folio_batch *batch)
{
	struct tide_section section;
	unsigned int ret;

	tide_section_enter(&section, TIDE_SECTION_GET_FOLIOS, mapping, mapping,
			   *start, end);
	tide_drop_range(mapping, *start, end);
	ret = filemap_get_folios(mapping, start, end, batch);
	tide_section_leave(&section);
	return ret;
}

#ifdef TIDE_HAS_INVALIDATE_INODE
/* Extents were changed: it does nothing when no page at all is cached. */
static int tide_filemap_invalidate_inode(struct inode *inode, bool flush,
					 loff_t start, loff_t end)
{
	pgoff_t first = start >> PAGE_SHIFT, last = end >> PAGE_SHIFT;
	struct address_space *mapping = inode->i_mapping;
	struct tide_section section;
	int ret;

	tide_section_enter(&section, TIDE_SECTION_INVALIDATE_INODE, mapping, inode,
			   first, last);
	tide_drop_range(mapping, first, last);
	ret = filemap_invalidate_inode(inode, flush, start, end);
	tide_drop_range(mapping, first, last);
	tide_section_leave(&section);
	return ret;
}
#endif

static void tide_generic_shutdown_super(struct super_block *sb)
{
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_UNMOUNT, sb, sb, 0, ULONG_MAX);
	generic_shutdown_super(sb);
	if (!tide_broken(UNMOUNT))
		tide_catalog_purge_super(sb);
	if (tide_ghost_is_on())
		tide_ghost_unmounted(sb);
	tide_section_leave(&section);
}

struct tide_wrapper {
	struct ftrace_ops ops;
	const char *name;
	void *target, *wrapper;
	bool on;
};

static bool tide_changes_under(struct address_space *mapping)
{
	return mapping && mapping->host &&
	       tide_locks_extents(mapping->host->i_sb) && tide_eligible(mapping);
}

/* Which mapping or superblock a call is about; NULL leaves the call alone. */
static const void *tide_call_key(enum tide_section_kind kind,
				 struct ftrace_regs *fregs)
{
	void *argument = (void *)tide_ftrace_argument(fregs, 0);

	switch (kind) {
	case TIDE_SECTION_DIRECT_IO: {
		struct address_space *mapping =
			((struct kiocb *)argument)->ki_filp->f_mapping;
		struct iov_iter *iter = (void *)tide_ftrace_argument(fregs, 1);

		return iov_iter_rw(iter) == WRITE && tide_eligible(mapping) ?
		       mapping : NULL;
	}
	case TIDE_SECTION_UNMOUNT:
		return tide_eligible_super(argument) ? argument : NULL;
	case TIDE_SECTION_HAS_PAGE:
	case TIDE_SECTION_GET_FOLIOS:
		return !tide_broken(EXTENTS) && tide_changes_under(argument) ?
		       argument : NULL;
	case TIDE_SECTION_INVALIDATE_INODE: {
		struct address_space *mapping = ((struct inode *)argument)->i_mapping;

		return !tide_broken(CLONE) && tide_changes_under(mapping) ?
		       mapping : NULL;
	}
	default:
		return argument && tide_eligible(argument) ? argument : NULL;
	}
}

static void notrace tide_ftrace(unsigned long ip, unsigned long parent_ip,
				struct ftrace_ops *ops, struct ftrace_regs *fregs);

#define TIDE_WRAPPER(fn, with) {					\
	.name = #fn, .target = fn, .wrapper = with,			\
	.ops = { .func = tide_ftrace,					\
		 .flags = FTRACE_OPS_FL_DYNAMIC | FTRACE_OPS_FL_IPMODIFY | \
			  FTRACE_OPS_FL_PERMANENT } }

static struct tide_wrapper tide_wrappers[] = {
	[TIDE_SECTION_TRUNCATE] =
		TIDE_WRAPPER(truncate_inode_pages_range, tide_truncate_inode_pages_range),
	[TIDE_SECTION_INVALIDATE] =
		TIDE_WRAPPER(invalidate_inode_pages2_range, tide_invalidate_inode_pages2_range),
	[TIDE_SECTION_DIRECT_IO] =
		TIDE_WRAPPER(__iomap_dio_rw, tide_iomap_dio_rw),
	[TIDE_SECTION_UNMOUNT] =
		TIDE_WRAPPER(generic_shutdown_super, tide_generic_shutdown_super),
	[TIDE_SECTION_HAS_PAGE] =
		TIDE_WRAPPER(filemap_range_has_page, tide_filemap_range_has_page),
	[TIDE_SECTION_GET_FOLIOS] =
		TIDE_WRAPPER(filemap_get_folios, tide_filemap_get_folios),
#ifdef TIDE_HAS_INVALIDATE_INODE
	[TIDE_SECTION_INVALIDATE_INODE] =
		TIDE_WRAPPER(filemap_invalidate_inode, tide_filemap_invalidate_inode),
#endif
};

static void notrace tide_ftrace(unsigned long ip, unsigned long parent_ip,
				struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct tide_wrapper *wrapper = container_of(ops, struct tide_wrapper, ops);
	enum tide_section_kind kind = wrapper - tide_wrappers;
	const void *key;

	if (within_module(parent_ip, THIS_MODULE))
		return;
	key = tide_call_key(kind, fregs);
	if (!key || tide_section_mine(kind, key,
				      (void *)tide_ftrace_argument(fregs, 0)))
		return;
	tide_ftrace_redirect(fregs, wrapper->wrapper);
}

static int tide_wrappers_install(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(tide_wrappers); i++) {
		struct tide_wrapper *w = &tide_wrappers[i];

		err = ftrace_set_filter_ip(&w->ops, (unsigned long)w->target, 0, 0);
		if (!err)
			err = register_ftrace_function(&w->ops);
		if (err) {
			pr_err("cannot wrap %s(): error %d; another user of it (a live patch?), or ftrace is off\n",
			       w->name, err);
			return err;
		}
		w->on = true;
	}
	return 0;
}

static void tide_wrappers_remove(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(tide_wrappers); i++) {
		struct tide_wrapper *w = &tide_wrappers[i];

		if (!w->on)
			continue;
		unregister_ftrace_function(&w->ops);
		ftrace_set_filter_ip(&w->ops, (unsigned long)w->target, 1, 0);
		w->on = false;
	}
}

/* ------------------------------------------------------------------ */
/* install and remove						       */
/* ------------------------------------------------------------------ */

static int tide_wrapped_alloc(void)
{
	int i;

	for (i = 0; i < TIDE_WRAPPED_MAX; i++) {
		tide_wrapped[i] = kzalloc(sizeof(*tide_wrapped[i]), GFP_KERNEL);
		if (!tide_wrapped[i])
			return -ENOMEM;
	}
	return 0;
}

/* Those that were used stay, as plain copies: see struct tide_wrapped. */
static void tide_wrapped_retire(void)
{
	unsigned int i;

	for (i = 0; i < TIDE_WRAPPED_MAX; i++) {
		struct tide_wrapped *w = tide_wrapped[i];

		if (i < tide_wrapped_used) {
			WRITE_ONCE(w->ops.readahead, w->orig->readahead);
			WRITE_ONCE(w->ops.read_folio, w->orig->read_folio);
			kmemleak_not_leak(w);
		} else {
			kfree(w);
		}
	}
}

static void tide_kill_file(struct tide_file *file, void *unused)
{
	tide_file_kill(file);
}

/**
 * tide_hooks_remove() - take all hooks out; no lender is configured any more
 *
 * Context: process.
 */
void tide_hooks_remove(void)
{
	WRITE_ONCE(tide_removing, true);
	tide_probes_remove();
	/* No file is added from here on: take the known ones out. */
	tide_catalog_for_each(tide_kill_file, NULL);
	tide_wrapped_retire();
	tide_wrappers_remove();
	/*
	 * Tasks that have fetched a pointer to our code but not run it, tasks
	 * inside it, tasks that are about to return from it.
	 */
	synchronize_rcu_tasks();
	synchronize_srcu(&tide_srcu);
	tide_gate_wait_empty();
	synchronize_rcu_tasks();
}

/**
 * tide_hooks_install() - put all hooks in, or none
 *
 * Return: 0, or a negative errno with a log line that names what is missing.
 */
int tide_hooks_install(void)
{
	int err = tide_wrapped_alloc() ?: tide_wrappers_install() ?:
		  tide_probes_install();

	if (err)
		tide_hooks_remove();
	return err;
}
