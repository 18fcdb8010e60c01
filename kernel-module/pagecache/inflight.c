// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gate: truncations, invalidations, direct writes and unmounts that are in
 * progress. A page evicted while one of them covers it may hold what the disk
 * no longer holds a moment later, so its put is refused. A section lives on
 * the stack of the wrapped call, so nothing is ever allocated for it.
 *
 * A direct write may go on after its call has returned, until its completion
 * has invalidated the page cache; the inode's count of direct I/O says so, but
 * not where, and it counts reads as well. So a mapping that is written directly
 * has a struct tide_writes: one range around all direct writes since the count
 * was last seen at zero. It is of no use once the count is zero again, and goes
 * when the next direct write ends, to this file or to another of its bucket: so
 * there are never many more of them than files that are being written to.
 *
 * Of a mapping that is barred nothing is put for as long as its inode is in memory:
 * what it has in its page cache may not be what the disk holds.
 *
 * A call that began before this guest had a peer may be in no section. While it
 * goes on it has the inode's lock or the mapping's invalidate_lock for itself, or
 * counts as direct I/O, so a file that is in such a state is not taken into the
 * catalog for as long as a call may take (tide_gate_unsettled()).
 *
 * Why a put cannot slip through: the put makes its file known, then asks the
 * gate; the section enters the gate, then looks for the file. Both take the
 * bucket's lock, so at least one of them sees the other.
 */
#include <linux/delay.h>
#include <linux/hashtable.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "base/broken.h"
#include "base/compat.h"
#include "pagecache/inflight.h"

#define TIDE_GATE_BITS	8
#define TIDE_SETTLE	(120 * HZ)	/* a call that takes longer is reported as hung */

/**
 * struct tide_writes - where direct writes of a mapping may still be going on
 * @hash: in the bucket of @mapping
 * @mapping: of a regular file
 * @first: first page index covered
 * @last: last page index covered
 * @barred: nothing of the mapping is put
 */
struct tide_writes {
	struct hlist_node hash;
	const struct address_space *mapping;
	pgoff_t first, last;
	bool barred;
};

static struct tide_gate_bucket {
	spinlock_t lock;	/* taken with interrupts off, inside a file's */
	struct hlist_head sections;
	struct hlist_head writes;
} tide_gate[1 << TIDE_GATE_BITS] = {
	[0 ... (1 << TIDE_GATE_BITS) - 1] = {
		.lock = __SPIN_LOCK_UNLOCKED(tide_gate.lock),
	},
};

/*
 * How many sections there are: entered on the one processor and left on another,
 * so that only the sum tells. Each inode that leaves memory is in one.
 */
static DEFINE_PER_CPU(long, tide_sections);
static atomic_t tide_writes_count;
/* A struct tide_writes could not be had, or would not be forgotten in time. */
static bool tide_gate_coarse = true;
static unsigned long tide_gate_since;	/* jiffies when this guest began to borrow */

static struct tide_gate_bucket *tide_gate_bucket(const void *key)
{
	return &tide_gate[hash_ptr(key, TIDE_GATE_BITS)];
}

static void tide_section_init(struct tide_section *s, enum tide_section_kind kind,
			      const void *key, const void *argument,
			      pgoff_t first, pgoff_t last)
{
	s->key = key;
	s->argument = argument;
	s->task = current;
	s->kind = kind;
	s->first = first;
	s->last = last;
	this_cpu_inc(tide_sections);
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

	tide_section_init(s, kind, key, argument, first, last);
	spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&s->hash, &bucket->sections);
	spin_unlock_irqrestore(&bucket->lock, flags);
}

static struct tide_writes *tide_writes_find(struct tide_gate_bucket *bucket,
					    const struct address_space *mapping)
{
	struct tide_writes *writes;

	hlist_for_each_entry(writes, &bucket->writes, hash)
		if (writes->mapping == mapping)
			return writes;
	return NULL;
}

/* Is no direct write in progress, neither inside its call nor after it? */
static bool tide_writes_over(struct tide_gate_bucket *bucket,
			     const struct address_space *mapping)
{
	struct tide_section *s;

	hlist_for_each_entry(s, &bucket->sections, hash)
		if (s->key == mapping && s->kind == TIDE_SECTION_DIRECT_IO)
			return false;
	return !atomic_read(&mapping->host->i_dio_count);
}

static void tide_writes_add(struct tide_gate_bucket *bucket, struct tide_writes *writes)
{
	hlist_add_head(&writes->hash, &bucket->writes);
	atomic_inc(&tide_writes_count);
}

static void tide_writes_remove(struct tide_writes *writes)
{
	hlist_del(&writes->hash);
	atomic_dec(&tide_writes_count);
	kfree(writes);
}

/*
 * The inodes of all that are noted are in memory: those that leave it are forgotten
 * first, and tide_gate_retire() forgets all before that ends.
 */
static void tide_writes_sweep(struct tide_gate_bucket *bucket)
{
	struct tide_writes *writes;
	struct hlist_node *next;

	hlist_for_each_entry_safe(writes, next, &bucket->writes, hash)
		if (!writes->barred && tide_writes_over(bucket, writes->mapping))
			tide_writes_remove(writes);
}

/* Notes a direct write; returns @spare if it was not needed. */
static struct tide_writes *tide_writes_note(struct tide_gate_bucket *bucket,
					    const struct address_space *mapping,
					    struct tide_writes *spare,
					    pgoff_t first, pgoff_t last)
{
	struct tide_writes *writes = tide_writes_find(bucket, mapping);

	if (!writes && (!spare || READ_ONCE(tide_gate_coarse))) {
		WRITE_ONCE(tide_gate_coarse, true);
	} else if (!writes) {
		*spare = (struct tide_writes) {
			.mapping = mapping, .first = first, .last = last,
		};
		tide_writes_add(bucket, spare);
		return NULL;
	} else if (tide_writes_over(bucket, mapping)) {
		writes->first = first;
		writes->last = last;
	} else {
		writes->first = min(writes->first, first);
		writes->last = max(writes->last, last);
	}
	return spare;
}

/**
 * tide_section_enter_write() - close the gate for a direct write
 * @s: on the caller's stack
 * @mapping: of a regular file
 * @argument: first argument of the wrapped call
 * @first: first page index covered
 * @last: last page index covered
 *
 * The range stays closed after tide_section_leave() until the inode's count of
 * direct I/O is zero. When there is no memory to note it, every direct I/O
 * closes the gate of its whole file from then on.
 *
 * Context: process.
 */
void tide_section_enter_write(struct tide_section *s, struct address_space *mapping,
			      const void *argument, pgoff_t first, pgoff_t last)
{
	struct tide_writes *spare = kmalloc(sizeof(*spare), GFP_NOIO | __GFP_NOWARN);
	struct tide_gate_bucket *bucket = tide_gate_bucket(mapping);
	unsigned long flags;

	tide_section_init(s, TIDE_SECTION_DIRECT_IO, mapping, argument, first, last);
	spin_lock_irqsave(&bucket->lock, flags);
	spare = tide_writes_note(bucket, mapping, spare, first, last);
	hlist_add_head(&s->hash, &bucket->sections);
	spin_unlock_irqrestore(&bucket->lock, flags);
	kfree(spare);
}

/**
 * tide_gate_bar() - put nothing of a mapping while its inode is in memory
 * @mapping: of a regular file
 *
 * Context: process.
 */
void tide_gate_bar(const struct address_space *mapping)
{
	struct tide_writes *spare = kzalloc(sizeof(*spare), GFP_NOFS | __GFP_NOFAIL);
	struct tide_gate_bucket *bucket = tide_gate_bucket(mapping);
	struct tide_writes *writes;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	writes = tide_writes_find(bucket, mapping);
	if (!writes) {
		writes = spare;
		spare = NULL;
		writes->mapping = mapping;
		writes->first = ULONG_MAX;
		tide_writes_add(bucket, writes);
	}
	writes->barred = true;
	spin_unlock_irqrestore(&bucket->lock, flags);
	kfree(spare);
}

/**
 * tide_writes_forget() - the inode of a mapping leaves memory
 * @mapping: no direct I/O to it is in progress
 *
 * Context: any.
 */
void tide_writes_forget(const struct address_space *mapping)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(mapping);
	struct tide_writes *writes;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	writes = tide_writes_find(bucket, mapping);
	if (writes)
		tide_writes_remove(writes);
	spin_unlock_irqrestore(&bucket->lock, flags);
}

/**
 * tide_writes_noted() - how many files have a note that they are written directly, or barred
 */
unsigned int tide_writes_noted(void)
{
	return atomic_read(&tide_writes_count);
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
	if (s->kind == TIDE_SECTION_DIRECT_IO)
		tide_writes_sweep(bucket);
	spin_unlock_irqrestore(&bucket->lock, flags);
	this_cpu_dec(tide_sections);
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
 * Context: any, with the file's lock held.
 */
bool tide_gate_closed(struct address_space *mapping, pgoff_t first, pgoff_t last)
{
	struct tide_gate_bucket *bucket = tide_gate_bucket(mapping);
	struct tide_writes *writes;
	struct tide_section *s;
	unsigned long flags;
	bool closed;

	spin_lock_irqsave(&bucket->lock, flags);
	writes = tide_writes_find(bucket, mapping);
	closed = writes && writes->barred;
	if (!tide_broken(DIRECT_IO) && atomic_read(&mapping->host->i_dio_count))
		closed |= READ_ONCE(tide_gate_coarse) ||
			  (writes && writes->first <= last && writes->last >= first);
	hlist_for_each_entry(s, &bucket->sections, hash) {
		if (closed)
			break;
		closed = s->key == mapping && s->first <= last && s->last >= first;
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	return closed;
}

/**
 * tide_gate_begin() - this guest borrows from now on; the hooks are in
 */
void tide_gate_begin(void)
{
	WRITE_ONCE(tide_gate_since, jiffies);
}

/**
 * tide_gate_unsettled() - may a call that no section knows be changing a file?
 * @inode: a regular file that the catalog does not know
 *
 * Context: any.
 */
bool tide_gate_unsettled(struct inode *inode)
{
	if (tide_broken(SETTLE) ||
	    time_after(jiffies, READ_ONCE(tide_gate_since) + TIDE_SETTLE))
		return false;
	return tide_rwsem_is_write_locked(&inode->i_rwsem) ||
	       tide_rwsem_is_write_locked(&inode->i_mapping->invalidate_lock) ||
	       atomic_read(&inode->i_dio_count);
}

static void tide_gate_forget(void)
{
	struct tide_writes *writes;
	struct hlist_node *next;
	int i;

	for (i = 0; i < ARRAY_SIZE(tide_gate); i++) {
		spin_lock_irq(&tide_gate[i].lock);
		hlist_for_each_entry_safe(writes, next, &tide_gate[i].writes, hash)
			tide_writes_remove(writes);
		spin_unlock_irq(&tide_gate[i].lock);
	}
}

/**
 * tide_gate_note() - the wrappers are in: direct writes are noted, and forgotten in time
 *
 * Context: process.
 */
void tide_gate_note(void)
{
	WRITE_ONCE(tide_gate_coarse, false);
}

/**
 * tide_gate_retire() - the wrappers are to be taken out
 *
 * From then on nobody says that an inode leaves memory, so nothing is noted.
 *
 * Context: process.
 */
void tide_gate_retire(void)
{
	WRITE_ONCE(tide_gate_coarse, true);
	tide_gate_forget();
}

/* Exact when none is entered any more; while some are left it may be too many. */
static long tide_sections_left(void)
{
	long left = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		left += READ_ONCE(per_cpu(tide_sections, cpu));
	return left;
}

/**
 * tide_gate_wait_empty() - wait until no wrapped call is in progress
 *
 * Context: process, with the wrappers taken out already.
 */
void tide_gate_wait_empty(void)
{
	while (tide_sections_left())
		msleep(20);
	tide_gate_forget();
}
