// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate: truncations, invalidations, direct writes and unmounts that are in
 * progress. A page evicted while one of them covers it may hold what the disk
 * no longer holds a moment later, so its put is refused. A section lives on
 * the stack of the wrapped call, so nothing is ever allocated for it.
 *
 * Why a put cannot slip through: the put makes its file known, then asks the
 * gate; the section enters the gate, then looks for the file. Both take the
 * bucket's lock, so at least one of them sees the other.
 */
#include <linux/delay.h>
#include <linux/hashtable.h>
#include <linux/sched.h>

#include "tidepool.h"

#define TIDE_GATE_BITS	8

static struct tide_gate_bucket {
	spinlock_t lock;	/* taken with interrupts off, inside a file's */
	struct hlist_head sections;
} tide_gate[1 << TIDE_GATE_BITS] = {
	[0 ... (1 << TIDE_GATE_BITS) - 1] = {
		.lock = __SPIN_LOCK_UNLOCKED(tide_gate.lock),
	},
};

static atomic_t tide_sections = ATOMIC_INIT(0);

static struct tide_gate_bucket *tide_gate_bucket(const void *key)
{
	return &tide_gate[hash_ptr(key, TIDE_GATE_BITS)];
}

/**
 * tide_section_enter() - close the gate for a range of pages
 * @s: on the caller's stack
 * @kind: which call is being made
 * @key: the mapping, or the superblock
 * @argument: first argument of that call, to know it again
 * @first: first page index covered
 * @last: last page index covered
 *
 * Context: process.
 */
void tide_section_enter(struct tide_section *s, enum tide_section_kind kind,
			const void *key, const void *argument,
			pgoff_t first, pgoff_t last)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(key);
	unsigned long flags;

	s->key = key;
	s->argument = argument;
	s->task = current;
	s->kind = kind;
	s->first = first;
	s->last = last;
	atomic_inc(&tide_sections);
	spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&s->hash, &bucket->sections);
	spin_unlock_irqrestore(&bucket->lock, flags);
}

/**
 * tide_section_leave() - open the gate again
 * @s: the section
 */
void tide_section_leave(struct tide_section *s)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(s->key);
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	hlist_del(&s->hash);
	spin_unlock_irqrestore(&bucket->lock, flags);
	atomic_dec(&tide_sections);
}

/**
 * tide_section_mine() - is this task inside this very call already?
 * @kind: which call
 * @key: the mapping, or the superblock
 * @argument: first argument of the call
 *
 * Keeps a wrapper from wrapping the call that it makes itself. The address of
 * the caller alone does not tell: a function tracer may stand in between.
 */
bool tide_section_mine(enum tide_section_kind kind, const void *key,
		       const void *argument)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(key);
	struct tide_section *s;
	unsigned long flags;
	bool mine = false;

	spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(s, &bucket->sections, hash) {
		if (s->task == current && s->kind == kind &&
		    s->argument == argument) {
			mine = true;
			break;
		}
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	return mine;
}

/**
 * tide_gate_closed() - may pages of this range not be put now?
 * @mapping: of a regular file
 * @first: first page index
 * @last: last page index
 *
 * A direct write counts until its completion has invalidated the page cache:
 * that may be long after the wrapped call returned, and the inode's count of
 * direct I/O covers it (of reads, too).
 *
 * Context: any, with the file's lock held.
 */
bool tide_gate_closed(struct address_space *mapping, pgoff_t first, pgoff_t last)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(mapping);
	struct tide_section *s;
	unsigned long flags;
	bool closed = false;

	if (!tide_broken(DIRECT_IO) &&
	    atomic_read(&mapping->host->i_dio_count))
		return true;
	spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(s, &bucket->sections, hash) {
		if (s->key == mapping && s->first <= last && s->last >= first) {
			closed = true;
			break;
		}
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	return closed;
}

/**
 * tide_gate_wait_empty() - wait until no wrapped call is in progress
 *
 * Context: process, with the wrappers taken out already.
 */
void tide_gate_wait_empty(void)
{
	while (atomic_read(&tide_sections))
		msleep(20);
}
