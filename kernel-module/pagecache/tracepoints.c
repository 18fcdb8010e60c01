// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the borrower's side looks into the kernel. Puma patched the kernel and
 * used cleancache (gone since 5.17); this needs a stock one:
 *
 *	eviction	tracepoint mm_filemap_delete_from_page_cache
 *	instantiation	tracepoint mm_filemap_add_to_page_cache
 *	dirtying	tracepoint writeback_dirty_folio
 *	miss		a copy of the inode's a_ops with ->readahead and
 *			->read_folio replaced
 *	changes that go round these	ftrace.c
 *
 * All of them are in while there is a peer or ghost mode is on, and none
 * otherwise, so that a module without either costs nothing; without a peer the
 * tracepoints serve ghost mode only. What was already changing a file when they
 * were put in is inflight.c's concern.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/tracepoint.h>

#include "tidepool.h"

DEFINE_STATIC_SRCU(tide_srcu);		/* tasks inside a replaced a_ops call */
DEFINE_STATIC_KEY_FALSE(tide_has_peers);

/* ------------------------------------------------------------------ */
/* wrapped a_ops						       */
/* ------------------------------------------------------------------ */

/*
 * One copy for each a_ops table met. Callers such as generic_perform_write()
 * keep the pointer across sleeps, so a copy that was ever used is never freed:
 * unloading turns it into a plain copy of the original and leaves it behind.
 * They are few (one for each file system and journalling mode) and small;
 * kmemleak is told that they are meant to stay.
 *
 * When the module that a table is in goes, no inode of it is left and so nobody
 * who has a pointer to the copy: that is forgotten then, for another module's
 * table may lie at that address later.
 */
struct tide_wrapped {
	struct address_space_operations ops;
	const struct address_space_operations *orig;	/* NULL: a copy of nothing */
	const struct module *owner;
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

/* Swapping goes past the page cache, and what is in that may be put as it was before. */
static int tide_swap_activate(struct swap_info_struct *sis, struct file *file,
			      sector_t *span)
{
	struct address_space *mapping = file->f_mapping;
	int idx = srcu_read_lock(&tide_srcu), ret;

	tide_bar_mapping(mapping);
	ret = tide_original(READ_ONCE(mapping->a_ops))->swap_activate(sis, file, span);
	srcu_read_unlock(&tide_srcu, idx);
	return ret;
}

/* The first copy of a table, or of nothing; NULL when there is none. Locked. */
static struct tide_wrapped *tide_wrapped_find(const struct address_space_operations *orig)
{
	unsigned int i;

	for (i = 0; i < tide_wrapped_used; i++)
		if (tide_wrapped[i]->orig == orig)
			return tide_wrapped[i];
	return NULL;
}

/* A copy that nobody uses, or one of the preallocated ones; NULL: all are used. Locked. */
static struct tide_wrapped *tide_wrapped_new(void)
{
	struct tide_wrapped *wrapped = tide_wrapped_find(NULL);

	if (!wrapped && tide_wrapped_used < TIDE_WRAPPED_MAX) {
		wrapped = tide_wrapped[tide_wrapped_used];
		/* pairs with tide_original() */
		smp_store_release(&tide_wrapped_used, tide_wrapped_used + 1);
	}
	return wrapped;
}

/* The wrapped copy of a table, made if need be. */
static struct tide_wrapped *tide_wrap(const struct address_space_operations *orig,
				      const struct module *owner)
{
	struct tide_wrapped *wrapped;

	if (!orig->readahead || !orig->read_folio)
		return NULL;
	spin_lock(&tide_wrapped_lock);
	wrapped = tide_wrapped_find(orig);
	if (!wrapped)
		wrapped = tide_wrapped_new();
	if (wrapped && !wrapped->orig) {
		wrapped->ops = *orig;
		wrapped->ops.readahead = tide_readahead;
		wrapped->ops.read_folio = tide_read_folio;
		if (orig->swap_activate && !tide_broken(FLAGS))
			wrapped->ops.swap_activate = tide_swap_activate;
		wrapped->owner = owner;
		wrapped->orig = orig;
	}
	spin_unlock(&tide_wrapped_lock);
	return wrapped;
}

/* Forgets the tables of a module that goes: it has no inode any more. */
static int tide_module_changed(struct notifier_block *nb, unsigned long state, void *data)
{
	unsigned int i;

	if (state != MODULE_STATE_GOING || tide_broken(GOING))
		return NOTIFY_DONE;
	spin_lock_irq(&tide_wrapped_lock);
	for (i = 0; i < tide_wrapped_used; i++)
		if (tide_wrapped[i]->owner == data)
			tide_wrapped[i]->orig = NULL;
	spin_unlock_irq(&tide_wrapped_lock);
	return NOTIFY_OK;
}

static struct notifier_block tide_module_notifier = {
	.notifier_call = tide_module_changed,
};

/**
 * tide_hook_mapping() - have misses of a file come to us
 * @file: the descriptor, locked
 * @mapping: of its in-memory inode
 *
 * A file system may give a mapping another table at any time (ext4, when a file's
 * data are to go through the journal): then that one stays, and a later call wraps
 * it.
 *
 * Context: any; allocates nothing.
 */
void tide_hook_mapping(struct tide_file *file, struct address_space *mapping)
{
	const struct address_space_operations *ops = READ_ONCE(mapping->a_ops);
	struct tide_wrapped *wrapped;

	if (file->dead)
		return;
	if (ops->readahead != tide_readahead) {
		wrapped = tide_wrap(ops, mapping->host->i_sb->s_type->owner);
		if (!wrapped || cmpxchg(&mapping->a_ops, ops, &wrapped->ops) != ops)
			return;
	}
	if (file->mapping != mapping)
		WRITE_ONCE(file->mapping, mapping);
}

/**
 * tide_unhook_mapping() - give a file's a_ops back
 * @file: the descriptor, locked
 */
void tide_unhook_mapping(struct tide_file *file)
{
	struct address_space *mapping = file->mapping;
	const struct address_space_operations *ops, *orig;

	if (!mapping)
		return;
	ops = READ_ONCE(mapping->a_ops);
	orig = tide_original(ops);
	if (ops != orig)	/* another one has come in its place, if this fails */
		cmpxchg(&mapping->a_ops, ops, orig);
	WRITE_ONCE(file->mapping, NULL);
}

/* ------------------------------------------------------------------ */
/* tracepoints							       */
/* ------------------------------------------------------------------ */

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
	if (tide_store_owns(mapping)) {
		tide_store_deleted(mapping, folio);
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

	if (READ_ONCE(mapping->a_ops)->readahead == tide_readahead ||
	    mapping_exiting(mapping) || !tide_watched(mapping))
		return;
	file = tide_catalog_files() ? tide_file_find(mapping->host) : NULL;
	if (!file && tide_file_admitted(mapping->host) &&
	    tide_sequential_wants(mapping->host) && tide_eligible(mapping))
		file = tide_file_find_or_reserve(mapping->host);
	if (!file)
		return;
	tide_file_lock(file, flags);
	tide_hook_mapping(file, mapping);
	tide_file_unlock(file, flags);
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
	tide_file_lock(file, flags);
	tide_file_drop_locked(file, folio->index,
			      folio->index + folio_nr_pages(folio) - 1);
	tide_file_unlock(file, flags);
	tide_file_put(file);
}

static noinline void tide_dirtied(struct address_space *mapping, struct folio *folio)
{
	if (tide_ghost_is_on())
		tide_ghost_dirtied(mapping, folio);
	if (tide_catalog_files())
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

	for (i = ARRAY_SIZE(tide_probes); i-- > 0;) {
		struct tide_probe *probe = &tide_probes[i];

		if (probe->on)
			tracepoint_probe_unregister(probe->tp, probe->fn, NULL);
		probe->on = false;
	}
	tracepoint_synchronize_unregister();
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

/* Those that are copies of a table stay, as plain ones: see struct tide_wrapped. */
static void tide_wrapped_retire(void)
{
	unsigned int i;

	spin_lock_irq(&tide_wrapped_lock);
	for (i = 0; i < TIDE_WRAPPED_MAX; i++) {
		struct tide_wrapped *w = tide_wrapped[i];

		if (w && w->orig) {
			WRITE_ONCE(w->ops.readahead, w->orig->readahead);
			WRITE_ONCE(w->ops.read_folio, w->orig->read_folio);
			WRITE_ONCE(w->ops.swap_activate, w->orig->swap_activate);
			kmemleak_not_leak(w);
		} else {
			kfree(w);
		}
	}
	tide_wrapped_used = 0;
	spin_unlock_irq(&tide_wrapped_lock);
}

static void tide_kill_file(struct tide_file *file, void *unused)
{
	tide_file_kill(file);
}

static void tide_hooks_take_out(void)
{
	tide_probes_remove();
	tide_supers_forget();
	tide_wrappers_remove();
	tide_gate_forget();
}

static unsigned int tide_hooks_users;

/**
 * tide_hooks_hold() - put all hooks in, unless they are
 *
 * Context: process, callers take turns.
 * Return: 0, or a negative errno with a log line that names what is missing;
 * then no hook is in that was not before.
 */
int tide_hooks_hold(void)
{
	int err = 0;

	if (!tide_hooks_users)
		err = tide_wrappers_install() ?: tide_probes_install();
	if (err)
		tide_hooks_take_out();
	else
		tide_hooks_users++;
	return err;
}

/**
 * tide_hooks_release() - take all hooks out if nobody else needs them
 *
 * Context: process, callers take turns.
 */
void tide_hooks_release(void)
{
	if (!--tide_hooks_users)
		tide_hooks_take_out();
}

/**
 * tide_hooks_hold_for_peer() - the same, and they do their work for a peer
 *
 * Context: process, callers take turns.
 * Return: what tide_hooks_hold() returns.
 */
int tide_hooks_hold_for_peer(void)
{
	int err = tide_hooks_hold();

	if (!err)
		static_branch_inc(&tide_has_peers);
	return err;
}

/**
 * tide_hooks_release_from_peer() - a peer is gone
 *
 * After the last one no file is added once the probes that saw it have ended.
 * Those that there are go before the wrappers do, which watch over them.
 *
 * Context: process, callers take turns.
 */
void tide_hooks_release_from_peer(void)
{
	static_branch_dec(&tide_has_peers);
	if (!static_key_enabled(&tide_has_peers)) {
		tracepoint_synchronize_unregister();
		tide_catalog_for_each(tide_kill_file, NULL);
	}
	tide_hooks_release();
}

/**
 * tide_hooks_are_in() - is every hook in place now?
 */
bool tide_hooks_are_in(void)
{
	return READ_ONCE(tide_hooks_users);
}

/**
 * tide_hooks_exit() - leave no code of ours behind; nobody holds the hooks
 *
 * Context: process.
 */
void tide_hooks_exit(void)
{
	tide_wrapped_retire();
	unregister_module_notifier(&tide_module_notifier);
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
 * tide_hooks_init() - find out whether all hooks can be put in
 *
 * Return: 0, or a negative errno with a log line that names what is missing.
 */
int tide_hooks_init(void)
{
	int err = register_module_notifier(&tide_module_notifier) ?:
		  tide_wrapped_alloc() ?: tide_hooks_hold();

	if (err)
		tide_hooks_exit();
	else
		tide_hooks_release();
	return err;
}
