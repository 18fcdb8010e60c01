/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels that Tidepool is built for, one wrapper per
 * difference, with the version that brought it. The sources are written for
 * the newest kernel. What a kernel has is never told by its version, for
 * distributions take changes back into older ones: compat/ has a probe for each
 * difference, and Kbuild compiles them for TIDE_HAVE_....
 */
#ifndef TIDE_COMPAT_H
#define TIDE_COMPAT_H

#include <linux/blkdev.h>
#include <linux/ftrace.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/timex.h>
#include <linux/uio.h>
#include <asm/archrandom.h>
#include <net/sock.h>

#include "compat-generated.h"

/* 6.2: ftrace_regs became opaque, with accessors for arguments and address. */
#ifdef TIDE_HAVE_FTRACE_REGS_ARGUMENT
static __always_inline unsigned long
tide_ftrace_argument(struct ftrace_regs *fregs, unsigned int n)
{
	return ftrace_regs_get_argument(fregs, n);
}

static __always_inline void
tide_ftrace_redirect(struct ftrace_regs *fregs, void *to)
{
	ftrace_regs_set_instruction_pointer(fregs, (unsigned long)to);
}
#else
static __always_inline unsigned long
tide_ftrace_argument(struct ftrace_regs *fregs, unsigned int n)
{
	return regs_get_kernel_argument(&fregs->regs, n);
}

static __always_inline void
tide_ftrace_redirect(struct ftrace_regs *fregs, void *to)
{
	ftrace_instruction_pointer_set(fregs, (unsigned long)to);
}
#endif

/* 6.19: filemap_alloc_folio() takes a memory policy. */
static inline struct folio *tide_alloc_folio(gfp_t gfp)
{
#ifdef TIDE_HAVE_ALLOC_FOLIO_POLICY
	return filemap_alloc_folio(gfp, 0, NULL);
#else
	return filemap_alloc_folio(gfp, 0);
#endif
}

/* 6.3: filemap_get_folio() returns an error pointer instead of NULL. */
static inline struct folio *tide_find_folio(struct address_space *mapping,
					    pgoff_t index)
{
	struct folio *folio = filemap_get_folio(mapping, index);

	return IS_ERR(folio) ? NULL : folio;
}

/*
 * 6.2, taken back into 6.1: sk_use_task_frag decides whether a socket uses the
 * task's page fragment; before, sk_allocation without __GFP_FS said so. A read
 * that faults inside another socket's sendmsg() must not share that fragment
 * with it.
 */
static inline void tide_sk_own_frag(struct sock *sk)
{
	sk->sk_allocation = GFP_NOIO;
#ifdef TIDE_HAVE_SK_USE_TASK_FRAG
	sk->sk_use_task_frag = false;
#endif
}

/* 6.19: kernel_connect() and kernel_bind() take an address of unknown size. */
#ifndef TIDE_HAVE_SOCKADDR_UNSIZED
#define sockaddr_unsized sockaddr
#endif

/*
 * 6.2, taken back into 6.1: arch_get_random_longs(). Where the processor draws
 * no numbers, its clock is what never comes again just so.
 */
static inline unsigned long tide_hardware_random(void)
{
	unsigned long word;

#ifdef TIDE_HAVE_ARCH_RANDOM_LONGS
	if (arch_get_random_longs(&word, 1))
#else
	if (arch_get_random_long(&word))
#endif
		return word;
	return random_get_entropy();
}

/* 6.7: the kernel allocates shrinkers. */
static inline struct shrinker *
tide_shrinker_create(const char *name,
		     unsigned long (*count)(struct shrinker *, struct shrink_control *),
		     unsigned long (*scan)(struct shrinker *, struct shrink_control *))
{
#ifdef TIDE_HAVE_SHRINKER_ALLOC
	struct shrinker *shrinker = shrinker_alloc(0, "%s", name);
#else
	struct shrinker *shrinker = kzalloc(sizeof(*shrinker), GFP_KERNEL);
#endif

	if (!shrinker)
		return NULL;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker->seeks = DEFAULT_SEEKS;
#ifdef TIDE_HAVE_SHRINKER_ALLOC
	shrinker_register(shrinker);
#else
	if (register_shrinker(shrinker, "%s", name)) {
		kfree(shrinker);
		return NULL;
	}
#endif
	return shrinker;
}

static inline void tide_shrinker_destroy(struct shrinker *shrinker)
{
#ifdef TIDE_HAVE_SHRINKER_ALLOC
	shrinker_free(shrinker);
#else
	unregister_shrinker(shrinker);
	kfree(shrinker);
#endif
}

/* 6.4: what was reclaimed outside of the LRU lists is counted by a function. */
static inline void tide_account_reclaimed(unsigned long pages)
{
#ifdef TIDE_HAVE_ACCOUNT_RECLAIMED
	mm_account_reclaimed_pages(pages);
#else
	if (current->reclaim_state)
		current->reclaim_state->reclaimed_slab += pages;
#endif
}

/*
 * No version: nothing tells whether the current task holds the lock of an inode
 * for writing, but the lock's owner does, wherever the kernel notes it.
 */
static inline bool tide_inode_locked_by_me(const struct inode *inode)
{
#ifdef CONFIG_PREEMPT_RT
	return false;
#else
	const long reader = 1, flags = 7;	/* RWSEM_READER_OWNED, RWSEM_OWNER_FLAGS_MASK */
	long owner = atomic_long_read(&inode->i_rwsem.owner);

	return !(owner & reader) && (owner & ~flags) == (long)current;
#endif
}

/* 6.12 at the latest: rwsem.h names the bit that says that a writer has the lock. */
#ifndef RWSEM_WRITER_LOCKED
#define RWSEM_WRITER_LOCKED	1UL
#endif

static inline bool tide_rwsem_is_write_locked(struct rw_semaphore *sem)
{
#ifdef CONFIG_PREEMPT_RT
	return rwsem_is_locked(sem);
#else
	return atomic_long_read(&sem->count) & RWSEM_WRITER_LOCKED;
#endif
}

/*
 * 6.11: that pages must not change while they are written is among a queue's limits;
 * before, it was a flag, which device-mapper takes away with each new table.
 */
static inline void tide_hint_stable_writes(struct queue_limits *limits)
{
#ifdef TIDE_HAVE_STABLE_WRITES
	limits->features |= BLK_FEAT_STABLE_WRITES;
#endif
}

static inline void tide_set_stable_writes(struct request_queue *queue)
{
#ifndef TIDE_HAVE_STABLE_WRITES
	blk_queue_flag_set(QUEUE_FLAG_STABLE_WRITES, queue);
#endif
}

/* 6.5: block devices have modes of their own. */
#ifndef BLK_OPEN_WRITE
#define BLK_OPEN_WRITE		FMODE_WRITE
#endif

/* 6.2 (backported to 6.1): directions of an iov_iter got names. */
#ifndef ITER_SOURCE
#define ITER_SOURCE	WRITE
#define ITER_DEST	READ
#endif

/* 6.12: unaligned.h is the same for all architectures. */
#if __has_include("linux/unaligned.h")
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

/* 6.4: hex2bin() has a header of its own, which kernel.h included for a while. */
#if __has_include("linux/hex.h")
#include <linux/hex.h>
#else
#include <linux/kernel.h>
#endif

#endif /* TIDE_COMPAT_H */
