// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ftrace wrappers: functions of the kernel that change what a file holds
 * and go round the page cache's tracepoints. A call is sent to the wrapper,
 * which closes the gate, drops what the pool has, and makes the call itself.
 *
 *	truncation, hole punching, inode eviction
 *			truncate_inode_pages_range()
 *	invalidation	invalidate_inode_pages2_range()
 *	direct writes	__iomap_dio_rw()
 *	ext4's exchange of two files' extents
 *			lock_two_nondirectories()
 *	swap files	inode_dio_wait()
 *	unmount		generic_shutdown_super()
 *	btrfs only: is the page cache empty where it is going to change extents?
 *			filemap_range_has_page(), filemap_get_folios() and,
 *			where that passes over an empty cache,
 *			filemap_invalidate_inode()
 *
 * They are ftrace's, not kprobes: kprobes can be switched off behind the
 * module's back, and then stale pages are served. FTRACE_OPS_FL_PERMANENT
 * makes the sysctl that would switch these off fail with EBUSY. A copy of such a
 * function that the compiler made for some of its callers would not be wrapped;
 * test_control.py looks for one in each kernel.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/iomap.h>
#include <linux/module.h>
#include <linux/uio.h>

#include "base/broken.h"
#include "base/compat.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"
#include "pagecache/file.h"
#include "pagecache/filesystem.h"
#include "pagecache/ftrace.h"
#include "pagecache/ghost.h"
#include "pagecache/inflight.h"
#include "pagecache/kill.h"
#include "pagecache/mapping.h"
#include "pagecache/sequential.h"
#include "pagecache/superblock.h"
#include "pagecache/tracepoints.h"

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
 * A file changes, or may, without a word to the page cache: what the pool has of it
 * is dropped, and what is cached now is not put.
 */
static void tide_bar_mapping(struct address_space *mapping)
{
	tide_gate_bar(mapping);
	tide_drop_range(mapping, 0, ULONG_MAX);
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
	tide_object_lock(&file->object, flags);
	if (file->mapping == mapping)
		tide_unhook_mapping(file);
	tide_object_unlock(&file->object, flags);
	tide_sequential_drop(file, 0, ULONG_MAX);
	if (!inode->i_nlink || !(inode->i_sb->s_flags & SB_ACTIVE) ||
	    file->generation != inode->i_generation || !tide_eligible(mapping) ||
	    tide_object_empty(&file->object))
		tide_file_kill(file);
	tide_file_put(file);
}

static pgoff_t tide_last_page(loff_t end)
{
	return end == -1 ? ULONG_MAX : end >> PAGE_SHIFT;
}

static void tide_truncation_begins(struct address_space *mapping,
				   pgoff_t first, pgoff_t last)
{
	if (mapping_exiting(mapping)) {
		tide_inode_evicted(mapping);
		tide_writes_forget(mapping);
	} else {
		tide_drop_range(mapping, first, last);
	}
}

static void tide_truncate_inode_pages_range(struct address_space *mapping,
					    loff_t start, loff_t end)
{
	pgoff_t first = start >> PAGE_SHIFT, last = tide_last_page(end);
	bool exiting = mapping_exiting(mapping);
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_TRUNCATE, mapping, mapping,
			   first, last);
	tide_truncation_begins(mapping, first, last);
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

#ifdef TIDE_HAVE_INVALIDATE_INODE
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

/*
 * ext4 locks two files, gives each the extents of the other, and copies the data of
 * the first: it goes by the page cache, but of the second one's, the donor, that is
 * told nothing.
 */
static void tide_lock_two_nondirectories(struct inode *inode, struct inode *donor)
{
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_EXCHANGE, donor->i_mapping, inode,
			   ULONG_MAX, 0);
	tide_bar_mapping(donor->i_mapping);
	lock_two_nondirectories(inode, donor);
	tide_section_leave(&section);
}

/*
 * swapon() marks a file, waits for direct writes, and swaps then. That goes past the
 * file's page cache, which is kept. The mark lets nothing through meanwhile.
 */
static void tide_inode_dio_wait(struct inode *inode)
{
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_SWAP, inode->i_mapping, inode,
			   ULONG_MAX, 0);
	tide_bar_mapping(inode->i_mapping);
	inode_dio_wait(inode);
	tide_section_leave(&section);
}

static void tide_generic_shutdown_super(struct super_block *sb)
{
	struct tide_section section;

	tide_section_enter(&section, TIDE_SECTION_UNMOUNT, sb, sb, 0, ULONG_MAX);
	generic_shutdown_super(sb);
	if (!tide_broken(UNMOUNT))
		tide_files_kill(sb);
	tide_super_left(sb);
	if (tide_ghost_is_on())
		tide_ghost_unmounted(sb);
	tide_section_leave(&section);
}

struct tide_wrapper {
	struct ftrace_ops ops;
	const char *name;
	void *target, *wrapper;
	bool on, stuck;
};

static bool tide_changes_under(struct address_space *mapping)
{
	return mapping && mapping->host &&
	       tide_locks_extents(mapping->host->i_sb) && tide_watched(mapping);
}

/* Renames call this too; but what they replace is hardly ever open for writing. */
static bool tide_may_exchange(struct inode *inode, struct inode *donor)
{
	return inode && donor && inode != donor && !tide_broken(EXCHANGE) &&
	       inode_is_open_for_write(donor) && tide_exchanges_extents(donor->i_sb) &&
	       tide_watched(donor->i_mapping);
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

		return iov_iter_rw(iter) == WRITE && tide_watched(mapping) ?
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
	case TIDE_SECTION_EXCHANGE: {
		struct inode *donor = (void *)tide_ftrace_argument(fregs, 1);

		return tide_may_exchange(argument, donor) ? donor->i_mapping : NULL;
	}
	case TIDE_SECTION_SWAP: {
		struct inode *inode = argument;

		return IS_SWAPFILE(inode) && !tide_broken(FLAGS) &&
		       tide_watched(inode->i_mapping) ? inode->i_mapping : NULL;
	}
	default:
		return argument && tide_watched(argument) ? argument : NULL;
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
	[TIDE_SECTION_EXCHANGE] =
		TIDE_WRAPPER(lock_two_nondirectories, tide_lock_two_nondirectories),
	[TIDE_SECTION_UNMOUNT] =
		TIDE_WRAPPER(generic_shutdown_super, tide_generic_shutdown_super),
	[TIDE_SECTION_HAS_PAGE] =
		TIDE_WRAPPER(filemap_range_has_page, tide_filemap_range_has_page),
	[TIDE_SECTION_GET_FOLIOS] =
		TIDE_WRAPPER(filemap_get_folios, tide_filemap_get_folios),
	[TIDE_SECTION_SWAP] =
		TIDE_WRAPPER(inode_dio_wait, tide_inode_dio_wait),
#ifdef TIDE_HAVE_INVALIDATE_INODE
	[TIDE_SECTION_INVALIDATE_INODE] =
		TIDE_WRAPPER(filemap_invalidate_inode, tide_filemap_invalidate_inode),
#endif
};

/*
 * Most calls are truncations: each inode that leaves memory is truncated. Without
 * a peer, and without a file that the last one left, there is nothing to guard:
 * ghost mode is told, and the call goes on as it is. One that is under way when
 * this guest begins to borrow is tide_gate_unsettled()'s concern, as is one that
 * began before the hooks were in. A page that is evicted meanwhile may be
 * followed in vain, which a curve can bear.
 */
static bool tide_goes_unguarded(enum tide_section_kind kind, const void *key,
				struct ftrace_regs *fregs)
{
	if (kind != TIDE_SECTION_TRUNCATE || tide_serves_peers() || tide_catalog_objects())
		return false;
	tide_truncation_begins((struct address_space *)key,
			       (loff_t)tide_ftrace_argument(fregs, 1) >> PAGE_SHIFT,
			       tide_last_page(tide_ftrace_argument(fregs, 2)));
	return true;
}

static void notrace tide_ftrace(unsigned long ip, unsigned long parent_ip,
				struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct tide_wrapper *wrapper = container_of(ops, struct tide_wrapper, ops);
	enum tide_section_kind kind = wrapper - tide_wrappers;
	const void *key;

	if (within_module(parent_ip, THIS_MODULE))
		return;
	key = tide_call_key(kind, fregs);
	if (!key || tide_goes_unguarded(kind, key, fregs) ||
	    tide_section_mine(kind, key, (void *)tide_ftrace_argument(fregs, 0)))
		return;
	tide_ftrace_redirect(fregs, wrapper->wrapper);
}

/**
 * tide_wrappers_install() - wrap all functions
 *
 * Context: process.
 * Return: 0, or a negative errno with a log line that names the function; then
 * tide_wrappers_remove() unwraps those that came before it.
 */
int tide_wrappers_install(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(tide_wrappers); i++) {
		struct tide_wrapper *w = &tide_wrappers[i];

		if (w->on)
			continue;
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

/* A wrapper that ftrace does not let go may be called at any time: this module stays. */
static void tide_wrapper_stuck(struct tide_wrapper *w, int err)
{
	pr_err("cannot unwrap %s(): error %d; the module cannot be unloaded any more\n",
	       w->name, err);
	if (!w->stuck)
		__module_get(THIS_MODULE);
	w->stuck = true;
}

/**
 * tide_wrappers_remove() - unwrap what is wrapped; calls may still be in progress
 *
 * One that cannot be unwrapped goes on to work, and holds the module.
 *
 * Context: process.
 */
void tide_wrappers_remove(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(tide_wrappers); i++) {
		struct tide_wrapper *w = &tide_wrappers[i];

		if (!w->on)
			continue;
		err = tide_broken(UNWRAP) ? -ENODEV : unregister_ftrace_function(&w->ops);
		if (err) {
			tide_wrapper_stuck(w, err);
			continue;
		}
		ftrace_set_filter_ip(&w->ops, (unsigned long)w->target, 1, 0);
		w->on = false;
	}
}
