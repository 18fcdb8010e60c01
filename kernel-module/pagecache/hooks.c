// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the borrower's side looks into the kernel. Puma patched the kernel and
 * used cleancache (gone since 5.17); this needs a stock one:
 *
 *	eviction	tracepoint mm_filemap_delete_from_page_cache
 *	instantiation	tracepoint mm_filemap_add_to_page_cache
 *	dirtying	tracepoint writeback_dirty_folio
 *	miss		->readahead and ->read_folio of the inode: mapping.c
 *	changes that go round these	ftrace.c
 *
 * When the hooks are in: all of them while there is a peer or ghost mode is on, and
 * none otherwise, so that a module without either costs nothing. What was already
 * changing a file when they were put in is inflight.c's concern.
 */
#include <linux/rcupdate.h>
#include <linux/tracepoint.h>

#include "borrower/ghost.h"
#include "pagecache/ftrace.h"
#include "pagecache/hooks.h"
#include "pagecache/inflight.h"
#include "pagecache/kill.h"
#include "pagecache/mapping.h"
#include "pagecache/superblock.h"
#include "pagecache/tracepoints.h"

static void tide_hooks_take_out(void)
{
	tide_probes_remove();
	tide_supers_forget();
	tide_gate_retire();
	tide_wrappers_remove();
}

static unsigned int tide_hooks_users;

/* Puts all hooks in, unless they are; with an error none is in that was not before. */
static int tide_hooks_hold(void)
{
	int err = 0;

	if (!tide_hooks_users)
		err = tide_wrappers_install() ?: tide_probes_install();
	if (err)
		tide_hooks_take_out();
	else if (!tide_hooks_users++)
		tide_gate_note();
	return err;
}

/* Takes all hooks out if nobody else needs them. */
static void tide_hooks_release(void)
{
	if (!--tide_hooks_users)
		tide_hooks_take_out();
}

/**
 * tide_hooks_hold_for_peer() - have all hooks in, and they do their work for a peer
 *
 * Context: process, callers take turns.
 * Return: 0, or a negative errno with a log line that names what is missing.
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
		tide_files_kill(NULL);
	}
	tide_hooks_release();
}

/**
 * tide_ghost_switch() - switch the mode, or leave it as it is
 * @mode: the new one
 *
 * While it is on, the hooks are in.
 *
 * Context: process, callers take turns.
 * Return: 0, -ENOMEM, or an errno with a log line that names the hook that is missing.
 */
int tide_ghost_switch(enum tide_ghost_mode mode)
{
	bool was_on = tide_ghost_mode() != TIDE_GHOST_OFF;
	int err;

	if (mode == tide_ghost_mode())
		return 0;
	if (mode == TIDE_GHOST_OFF) {
		tide_ghost_end();
		tide_hooks_release();
		return 0;
	}
	err = was_on ? 0 : tide_hooks_hold();
	if (err)
		return err;
	err = tide_ghost_begin(mode);
	if (err && !was_on)
		tide_hooks_release();
	return err;
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
	tide_mapping_retire();
	/*
	 * Tasks that have fetched a pointer to our code but not run it, tasks
	 * inside it, tasks that are about to return from it.
	 */
	synchronize_rcu_tasks();
	tide_mapping_wait();
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
	int err = tide_mapping_init() ?: tide_hooks_hold();

	if (err)
		tide_hooks_exit();
	else
		tide_hooks_release();
	return err;
}
