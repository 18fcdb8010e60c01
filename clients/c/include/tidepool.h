/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtidepool: values by key in the unused memory of other machines. It calls
 * /dev/tidepool, of the kernel module tidepool-app; libtidepool(3) is the manual.
 *
 * Every function may be called by several threads at once, also for the same pool.
 * A function that fails sets errno. To what each says add EFAULT: an address is none;
 * ENOMEM: the machine has too little memory; EINTR: a signal came.
 */
#ifndef LIBTIDEPOOL_H
#define LIBTIDEPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tidepool/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIDEPOOL_EPHEMERAL	0u	/* a value may be gone when it is asked for; TIDEPOOL_KEPT: it may not */

/* An open pool. */
typedef struct tidepool_pool tidepool_pool;

/**
 * struct tidepool_limits - what a pool that is made now may hold, and who may use it
 * @quota: in bytes; 0: what the administrator allows
 * @mode: of a pool with a name, as a file's; 0 is nobody but its user and root
 * @spill: of a kept pool: a directory on a disk of this machine, in which it has a file
 *	of @quota bytes that nobody else sees
 */
struct tidepool_limits {
	uint64_t quota;
	mode_t mode;
	const char *spill;
};

/**
 * tidepool_open() - open a pool, which is made if there is none
 * @name: that others see, up to 63 bytes of printable ASCII; NULL or "": a pool of one's
 *	own, which goes when it is closed
 * @flags: TIDEPOOL_EPHEMERAL or TIDEPOOL_KEPT
 * @limits: NULL: no quota of its own, and nobody else may use it; a kept pool needs @spill
 *	and a @quota
 *
 * Whoever may only read from a pool gets it as well: puts and deletes fail with EBADF.
 * So does whoever may only put and delete: all that reads fails with EBADF.
 * No lender is needed for a kept pool, and no value is lost with one. It ends as others
 * do, and when the machine restarts.
 *
 * Return: the pool for tidepool_close(), or NULL. errno: ENOENT: there is no
 * /dev/tidepool, or no such directory; EACCES: one may not open it, or not this pool;
 * EEXIST: the name is another user's pool and not what is asked for, or one of the other
 * kind; EDQUOT: one has too many, or a quota has no room for it; EPROTONOSUPPORT: module
 * and library are of different versions; EINVAL: @name, @flags, the mode or what a kept
 * pool needs are none; EMFILE, ENFILE: the program or the machine has too many files open.
 * Of a kept pool also what open(2) says of the directory, as EACCES, ENOTDIR and EROFS;
 * EOPNOTSUPP: no disk of this machine has it; ENOSPC: it is full; EFBIG: no file may be
 * as large as @quota.
 */
tidepool_pool *tidepool_open(const char *name, unsigned int flags, const struct tidepool_limits *limits);

/**
 * tidepool_close() - leave a pool
 * @pool: the pool, which nobody uses any more, or NULL
 */
void tidepool_close(tidepool_pool *pool);

/**
 * tidepool_unlink() - take a pool's name away
 * @pool: a pool with a name, of one's own
 *
 * Who has it open keeps it; with the last of them it goes.
 *
 * Return: 0 or -1. errno: ENOENT: it has no name; EPERM: it is somebody else's.
 */
int tidepool_unlink(tidepool_pool *pool);

/**
 * tidepool_put() - keep a value
 * @pool: where
 * @key: 1 to TIDEPOOL_KEY_MAX bytes
 * @key_size: how many
 * @value: up to TIDEPOOL_VALUE_MAX bytes
 * @size: how many
 *
 * Return: 0, or -1; then nothing has changed. errno: EDQUOT: a quota is full; ENOTCONN:
 * there is no lender; EAGAIN: lenders are too slow just now, or memory is too short to
 * read @value; E2BIG: the value is too large; EINVAL: the key is none; EBADF: one may only
 * read. Of a kept pool also ENOSPC: its file is full, or its disk; EIO: its disk has lost
 * something; EFBIG: the program may write no file as large as that.
 */
int tidepool_put(tidepool_pool *pool, const void *key, size_t key_size, const void *value, size_t size);

/**
 * tidepool_put_for() - keep a value for a time
 * @pool: where
 * @key: as of tidepool_put()
 * @key_size: how many bytes
 * @value: as of tidepool_put()
 * @size: how many bytes
 * @ms: milliseconds until it is gone; 0: never
 *
 * Return: as tidepool_put(). errno: EDQUOT, ENOTCONN, EAGAIN, E2BIG, EINVAL, EBADF, ENOSPC,
 * EIO, EFBIG.
 */
int tidepool_put_for(tidepool_pool *pool, const void *key, size_t key_size, const void *value, size_t size,
		     uint64_t ms);

/**
 * tidepool_get() - what was put last
 * @pool: where
 * @key: as of tidepool_put()
 * @key_size: how many bytes
 * @buffer: to be filled
 * @size: how many bytes it has
 *
 * Return: the value's bytes, or -1. errno: ENOENT: there is none, or no lender gave it
 * back; EMSGSIZE: it is larger than @buffer, see tidepool_size(); EINVAL: the key is none;
 * EBADF: one may only put; EIO: the disk of a kept pool has lost something.
 */
ssize_t tidepool_get(tidepool_pool *pool, const void *key, size_t key_size, void *buffer, size_t size);

/**
 * tidepool_get_new() - what was put last, in memory of its own
 * @pool: where
 * @key: as of tidepool_put()
 * @key_size: how many bytes
 * @value: set to memory for free(), with a NUL behind the value
 *
 * Return: the value's bytes, or -1. errno: as of tidepool_get() ENOENT, EINVAL, EBADF, EIO.
 */
ssize_t tidepool_get_new(tidepool_pool *pool, const void *key, size_t key_size, void **value);

/**
 * tidepool_size() - how many bytes a value has
 * @pool: where
 * @key: as of tidepool_put()
 * @key_size: how many bytes
 *
 * Nobody is asked: its lender may have lost it.
 *
 * Return: the bytes, or -1. errno: ENOENT: there is no value; EINVAL: the key is none;
 * EBADF: one may only put.
 */
ssize_t tidepool_size(tidepool_pool *pool, const void *key, size_t key_size);

/**
 * tidepool_delete() - let a value go
 * @pool: where
 * @key: as of tidepool_put()
 * @key_size: how many bytes
 *
 * Return: 0 or -1. errno: ENOENT: there was none; EINVAL: the key is none; EBADF: one may
 * only read.
 */
int tidepool_delete(tidepool_pool *pool, const void *key, size_t key_size);

/**
 * tidepool_calls() - do several things, one after the other, in few system calls
 * @pool: where
 * @calls: what; each @result is set to 0 or a negative errno
 * @count: how many
 *
 * Return: how many were done: @count, or less when a signal came or memory could not be
 * read; -1 when it is none.
 */
ssize_t tidepool_calls(tidepool_pool *pool, struct tidepool_call *calls, size_t count);

/**
 * tidepool_calls_within() - the same, with gets that are only tried
 * @pool: where
 * @calls: what; a TIDEPOOL_TRY_GET whose value has not come by then fails with EAGAIN
 * @count: how many
 * @wait_us: for how many microseconds those wait for lenders, from the beginning of a
 *	system call on; 0: not at all
 *
 * Gets that follow each other, tried or not, are under way together.
 *
 * Return: as tidepool_calls().
 */
ssize_t tidepool_calls_within(tidepool_pool *pool, struct tidepool_call *calls, size_t count, uint32_t wait_us);

/**
 * tidepool_each() - go through the keys, in the order of their bytes
 * @pool: where
 * @see: is given each key and @context; what is not 0 ends it
 * @context: whatever @see wants
 *
 * What is put meanwhile may be left out. @see may put and delete.
 *
 * Return: 0, what @see returned, or -1. errno: EBADF: one may only put.
 */
int tidepool_each(tidepool_pool *pool, int (*see)(const void *key, size_t key_size, void *context), void *context);

/**
 * tidepool_stats() - what a pool holds, and what became of calls so far
 * @pool: which
 * @stats: to be filled
 *
 * Return: 0 or -1. errno: EBADF: one may only put.
 */
int tidepool_stats(tidepool_pool *pool, struct tidepool_stats *stats);

/**
 * tidepool_strerror() - what an errno of this library means
 * @error: of errno
 *
 * Return: a text that stays; of an errno that means here what it means everywhere
 * strerror()'s.
 */
const char *tidepool_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif /* LIBTIDEPOOL_H */
