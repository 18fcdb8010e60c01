/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0) */
/*
 * /dev/tidepool: values of programs in lenders' memory. APPMEM.md says what a call
 * does and which errors there are.
 *
 * Whoever opens the device has no pool yet: TIDEPOOL_IOC_OPEN names one, once. What is
 * put may be gone when it is asked for, unless the pool is kept; what comes is what was
 * put last.
 */
#ifndef TIDEPOOL_H
#define TIDEPOOL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TIDEPOOL_API		1
#define TIDEPOOL_NAME_MAX	64		/* of a pool, with the final NUL */
#define TIDEPOOL_KEY_MAX	250		/* bytes; a key has one at least */
#define TIDEPOOL_VALUE_MAX	(2u << 20)	/* bytes; a value may have none */
#define TIDEPOOL_CALLS_MAX	256		/* that are made at once */
#define TIDEPOOL_KEPT		1u		/* of a pool: no value is with a lender alone */

/**
 * struct tidepool_open - a pool of one's own, or one that others see, too
 * @api: TIDEPOOL_API
 * @flags: 0 or TIDEPOOL_KEPT
 * @mode: of a shared pool that is made now: as a file's, for reading and writing
 * @spill: of a kept pool that is made now: a file that is opened for reading and writing,
 *	as large as all of its values, on a disk of this machine; -1 only joins one; else 0
 * @quota: bytes that a pool made now may hold; 0: what the administrator allows
 * @name: of a shared pool, made unless it is there, of printable ASCII; "": a private
 *	one, which goes with the last descriptor
 *
 * A pool that is there is joined if its mode lets the caller in. Another user's, but for
 * root's, must also be what is asked for, else it is EEXIST: it lets in nobody, its owner
 * included, whom @mode does not let in, and has @quota if that is not 0. Whoever has
 * opened it, it is EEXIST if it is kept and TIDEPOOL_KEPT is not said, or the other way
 * round.
 */
struct tidepool_open {
	__u32	api;
	__u32	flags;
	__u32	mode;
	__s32	spill;
	__u64	quota;
	char	name[TIDEPOOL_NAME_MAX];
};

enum tidepool_what {
	TIDEPOOL_PUT = 1,	/* @value becomes what @key stands for */
	TIDEPOOL_GET,		/* @value is filled */
	TIDEPOOL_DELETE,
	TIDEPOOL_EXISTS,	/* is there a value, as far as is known without asking? */
	TIDEPOOL_TRY_PUT,	/* a put, but what would have to wait changes nothing: -EAGAIN */
	TIDEPOOL_TRY_GET,	/* a get, but what would wait too long brings nothing: -EAGAIN */
};

/**
 * struct tidepool_call - one thing to do
 * @what: enum tidepool_what
 * @result: set to 0 or a negative errno
 * @key: address of the key
 * @value: address of the value, or of room for it
 * @expire_ms: of a put, tried or not: milliseconds until the value is gone; 0: never
 * @key_size: in bytes
 * @value_size: in bytes, of the value or of the room; a get, tried or not, and an exists
 *	set it to the value's, also when there is no room for it
 */
struct tidepool_call {
	__u32	what;
	__s32	result;
	__u64	key;
	__u64	value;
	__u64	expire_ms;
	__u32	key_size;
	__u32	value_size;
};

/**
 * struct tidepool_calls - things to do, one after the other; gets that follow each other together
 * @calls: address of as many struct tidepool_call
 * @count: how many, up to TIDEPOOL_CALLS_MAX
 * @wait_us: for so many microseconds from the beginning tried gets wait for lenders; 0: not at all
 *
 * Each call has its own result; the ioctl returns how many have one. That is less
 * than @count only when a signal came or memory could not be read, with an error when it is none.
 */
struct tidepool_calls {
	__u64	calls;
	__u32	count;
	__u32	wait_us;
};

/**
 * struct tidepool_uring - a call by io_uring: the command of an IORING_OP_URING_CMD
 * @call: address of a struct tidepool_call
 * @reserved: 0
 *
 * Its cmd_op is TIDEPOOL_URING_CALL. The completion's res is 0 when the call has a result,
 * -EINTR when it was not made, or another negative errno when it is none.
 */
struct tidepool_uring {
	__u64	call;
	__u64	reserved;
};

/**
 * struct tidepool_keys - the keys of a pool, in the order of their bytes
 * @after: address of the key to go on behind; what is put meanwhile may be left out
 * @buffer: address of room for keys, each behind its length, a byte
 * @after_size: of @after in bytes; 0: from the beginning
 * @size: of @buffer in bytes, at least TIDEPOOL_KEY_MAX + 1
 * @used: set to the bytes that were filled; 0: there are no more keys
 * @count: set to the keys that were filled in
 */
struct tidepool_keys {
	__u64	after;
	__u64	buffer;
	__u32	after_size;
	__u32	size;
	__u32	used;
	__u32	count;
};

/**
 * struct tidepool_stats - what a pool holds, and what became of calls so far; for readers
 * @quota: bytes that it may hold
 * @bytes: that count: whole pages of values, and the memory in which they are remembered
 * @values: how many there are, as far as is known
 * @value_bytes: of all of them
 * @hits: gets that brought the value
 * @misses: gets for which there was none
 * @lost: of those, for which there was one that no lender gave back
 * @puts: values that were put
 * @deletes: values that were deleted
 * @expired: values that were gone by their time
 * @moved: small values that were put again so that a page was left
 * @spilled: reads of a kept pool that its disk had to answer
 * @local: hits that needed no lender, as the value is read often
 * @front_bytes: memory of this machine that such values take now
 */
struct tidepool_stats {
	__u64	quota;
	__u64	bytes;
	__u64	values;
	__u64	value_bytes;
	__u64	hits;
	__u64	misses;
	__u64	lost;
	__u64	puts;
	__u64	deletes;
	__u64	expired;
	__u64	moved;
	__u64	spilled;
	__u64	local;
	__u64	front_bytes;
};

#define TIDEPOOL_IOC_OPEN	_IOW(0xb7, 0x40, struct tidepool_open)
#define TIDEPOOL_IOC_CALL	_IOWR(0xb7, 0x41, struct tidepool_calls)
#define TIDEPOOL_IOC_KEYS	_IOWR(0xb7, 0x42, struct tidepool_keys)
#define TIDEPOOL_IOC_STATS	_IOR(0xb7, 0x43, struct tidepool_stats)
#define TIDEPOOL_IOC_UNLINK	_IO(0xb7, 0x44)	/* the pool's name is free again */
#define TIDEPOOL_URING_CALL	_IOWR(0xb7, 0x45, struct tidepool_uring)

#endif /* TIDEPOOL_H */
