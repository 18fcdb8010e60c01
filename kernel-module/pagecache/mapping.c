// SPDX-License-Identifier: GPL-2.0-only
/*
 * Misses of a file come to us through a copy of its a_ops with ->readahead and
 * ->read_folio replaced.
 */
#include <linux/fs.h>
#include <linux/kmemleak.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include "base/broken.h"
#include "borrower/object.h"
#include "pagecache/file.h"
#include "pagecache/mapping.h"
#include "pagecache/readahead.h"

DEFINE_STATIC_SRCU(tide_srcu);		/* tasks inside a replaced a_ops call */

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

/* While a mapping is hooked its file is known, whatever of it is in the pool. */
static void tide_file_hook(struct tide_file *file, struct address_space *mapping)
{
	WRITE_ONCE(file->mapping, mapping);
	WRITE_ONCE(file->object.kept, mapping);
}

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

	if (file->object.dead)
		return;
	if (ops->readahead != tide_readahead) {
		wrapped = tide_wrap(ops, mapping->host->i_sb->s_type->owner);
		if (!wrapped || cmpxchg(&mapping->a_ops, ops, &wrapped->ops) != ops)
			return;
	}
	if (file->mapping != mapping)
		tide_file_hook(file, mapping);
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
	tide_file_hook(file, NULL);
}

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

/**
 * tide_mapping_retire() - no call comes here any more
 *
 * Copies of a table stay, as plain ones: see struct tide_wrapped.
 *
 * Context: process.
 */
void tide_mapping_retire(void)
{
	unsigned int i;

	spin_lock_irq(&tide_wrapped_lock);
	for (i = 0; i < TIDE_WRAPPED_MAX; i++) {
		struct tide_wrapped *w = tide_wrapped[i];

		if (w && w->orig) {
			WRITE_ONCE(w->ops.readahead, w->orig->readahead);
			WRITE_ONCE(w->ops.read_folio, w->orig->read_folio);
			kmemleak_not_leak(w);
		} else {
			kfree(w);
		}
	}
	tide_wrapped_used = 0;
	spin_unlock_irq(&tide_wrapped_lock);
	unregister_module_notifier(&tide_module_notifier);
}

/**
 * tide_mapping_wait() - wait for the calls that have come here
 *
 * Context: process, with the tables retired.
 */
void tide_mapping_wait(void)
{
	synchronize_srcu(&tide_srcu);
}

/**
 * tide_mapping_init() - be ready to replace tables
 *
 * Return: 0 or -ENOMEM; tide_mapping_retire() takes either back.
 */
int tide_mapping_init(void)
{
	return register_module_notifier(&tide_module_notifier) ?: tide_wrapped_alloc();
}

/**
 * tide_mapping_hooked() - do misses of this mapping come to us?
 * @mapping: of a regular file
 */
bool tide_mapping_hooked(const struct address_space *mapping)
{
	return READ_ONCE(mapping->a_ops)->readahead == tide_readahead;
}
