// SPDX-License-Identifier: Apache-2.0
/* libtidepool: a function for each thing that /dev/tidepool does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tidepool.h"

#define DEVICE		"/dev/tidepool"
#define FIRST_GUESS	4096		/* bytes of a value of which nobody knows the size */
#define KEYS_SIZE	65536		/* bytes of keys that are looked at together */

struct tidepool_pool {
	int device;
};

/* ---- pools ---- */

static int fail(int error)
{
	errno = error;
	return -1;
}

/* Is what a kept pool needs said, and said of no other? */
static bool kind_is_valid(unsigned int flags, const struct tidepool_limits *limits)
{
	if (flags == TIDEPOOL_KEPT)
		return limits && limits->spill && limits->quota;
	return flags == TIDEPOOL_EPHEMERAL && !(limits && limits->spill);
}

/* As it is asked for; a name that is too long is none. */
static int ask_for(struct tidepool_open *how, const char *name, unsigned int flags,
		   const struct tidepool_limits *limits)
{
	*how = (struct tidepool_open) { .api = TIDEPOOL_API, .flags = flags, .mode = 0600 };
	if (limits) {
		how->quota = limits->quota;
		how->mode = limits->mode ? limits->mode : 0600;
	}
	if (!kind_is_valid(flags, limits) || (name && strlen(name) >= sizeof(how->name)))
		return fail(EINVAL);
	if (name)
		strcpy(how->name, name);
	return 0;
}

static int open_to(const struct tidepool_open *how, int access)
{
	int error, device = open(DEVICE, access | O_CLOEXEC);

	if (device < 0 && errno == EPERM)	/* a container's */
		errno = EACCES;
	if (device < 0 || !ioctl(device, TIDEPOOL_IOC_OPEN, how))
		return device;
	error = errno;
	close(device);
	return fail(error);
}

/* For as much as the modes of device and pool allow. */
static int open_device(const struct tidepool_open *how)
{
	static const int accesses[] = { O_RDWR, O_RDONLY, O_WRONLY };
	int device = -1;

	errno = EACCES;
	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]) && device < 0 && errno == EACCES; i++)
		device = open_to(how, accesses[i]);
	return device;
}

/* Past its limit for files a signal would end the program. */
static bool may_be_as_large(uint64_t size)
{
	struct rlimit most;

	return size <= INT64_MAX && (getrlimit(RLIMIT_FSIZE, &most) || size <= most.rlim_cur);
}

/* A file without a name, which goes with the pool. */
static int spill_file(const struct tidepool_limits *limits)
{
	int error = EFBIG, file = open(limits->spill, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (file < 0)
		return -1;
	if (may_be_as_large(limits->quota)) {
		if (!ftruncate(file, limits->quota))
			return file;
		error = errno;
	}
	close(file);
	return fail(error);
}

/* Joins the kept pool of that name, or makes it, with a file in which it keeps what lenders may lose. */
static int open_kept(struct tidepool_open *how, const struct tidepool_limits *limits)
{
	int device, error;

	how->spill = -1;
	device = open_device(how);
	if (device >= 0 || errno != EBADF)
		return device;
	how->spill = spill_file(limits);
	if (how->spill < 0)
		return -1;
	device = open_device(how);
	error = errno;
	close(how->spill);	/* the pool has it */
	return device < 0 ? fail(error) : device;
}

tidepool_pool *tidepool_open(const char *name, unsigned int flags, const struct tidepool_limits *limits)
{
	struct tidepool_open how;
	tidepool_pool *pool;

	if (ask_for(&how, name, flags, limits))
		return NULL;
	pool = malloc(sizeof(*pool));
	if (!pool)
		return NULL;
	pool->device = flags == TIDEPOOL_KEPT ? open_kept(&how, limits) : open_device(&how);
	if (pool->device >= 0)
		return pool;
	free(pool);
	return NULL;
}

void tidepool_close(tidepool_pool *pool)
{
	if (!pool)
		return;
	close(pool->device);
	free(pool);
}

int tidepool_unlink(tidepool_pool *pool)
{
	return ioctl(pool->device, TIDEPOOL_IOC_UNLINK);
}

int tidepool_stats(tidepool_pool *pool, struct tidepool_stats *stats)
{
	return ioctl(pool->device, TIDEPOOL_IOC_STATS, stats);
}

/* ---- values ---- */

/* The interface counts keys and values in 32 bits; more is too much there, too. */
static uint32_t counted(size_t size)
{
	return size > UINT32_MAX ? UINT32_MAX : size;
}

/* What is to be done with a key. */
static struct tidepool_call about(uint32_t what, const void *key, size_t key_size)
{
	return (struct tidepool_call) { .what = what, .key = (uintptr_t)key, .key_size = counted(key_size) };
}

static int call(tidepool_pool *pool, struct tidepool_call *one)
{
	struct tidepool_calls calls = { .calls = (uintptr_t)one, .count = 1 };

	if (ioctl(pool->device, TIDEPOOL_IOC_CALL, &calls) < 0)
		return -1;
	return one->result ? fail(-one->result) : 0;
}

int tidepool_put_for(tidepool_pool *pool, const void *key, size_t key_size, const void *value, size_t size,
		     uint64_t ms)
{
	struct tidepool_call put = about(TIDEPOOL_PUT, key, key_size);

	put.value = (uintptr_t)value;
	put.value_size = counted(size);
	put.expire_ms = ms;
	return call(pool, &put);
}

int tidepool_put(tidepool_pool *pool, const void *key, size_t key_size, const void *value, size_t size)
{
	return tidepool_put_for(pool, key, key_size, value, size, 0);
}

/* Gets a value; *@needed: how many bytes it has, also when there is no room for it. */
static ssize_t get(tidepool_pool *pool, const void *key, size_t key_size, void *buffer, size_t size, size_t *needed)
{
	struct tidepool_call get = about(TIDEPOOL_GET, key, key_size);
	int failed;

	get.value = (uintptr_t)buffer;
	get.value_size = counted(size);
	failed = call(pool, &get);
	*needed = get.value_size;
	return failed ? -1 : (ssize_t)get.value_size;
}

ssize_t tidepool_get(tidepool_pool *pool, const void *key, size_t key_size, void *buffer, size_t size)
{
	size_t needed;

	return get(pool, key, key_size, buffer, size, &needed);
}

ssize_t tidepool_get_new(tidepool_pool *pool, const void *key, size_t key_size, void **value)
{
	size_t room, needed = FIRST_GUESS;
	char *buffer = NULL, *more;
	ssize_t size;

	do {
		room = needed;
		more = realloc(buffer, room + 1);
		if (!more) {
			free(buffer);
			return -1;
		}
		buffer = more;
		size = get(pool, key, key_size, buffer, room, &needed);
	} while (size < 0 && errno == EMSGSIZE);	/* somebody may make it larger meanwhile */
	if (size < 0) {
		free(buffer);
		return -1;
	}
	buffer[size] = '\0';
	*value = buffer;
	return size;
}

ssize_t tidepool_size(tidepool_pool *pool, const void *key, size_t key_size)
{
	struct tidepool_call look = about(TIDEPOOL_EXISTS, key, key_size);

	return call(pool, &look) ? -1 : (ssize_t)look.value_size;
}

int tidepool_delete(tidepool_pool *pool, const void *key, size_t key_size)
{
	struct tidepool_call delete = about(TIDEPOOL_DELETE, key, key_size);

	return call(pool, &delete);
}

ssize_t tidepool_calls(tidepool_pool *pool, struct tidepool_call *calls, size_t count)
{
	return tidepool_calls_within(pool, calls, count, 0);
}

ssize_t tidepool_calls_within(tidepool_pool *pool, struct tidepool_call *calls, size_t count, uint32_t wait_us)
{
	size_t done = 0;
	int made;

	while (done < count) {
		size_t left = count - done;
		struct tidepool_calls some = {
			.calls = (uintptr_t)(calls + done),
			.count = left < TIDEPOOL_CALLS_MAX ? left : TIDEPOOL_CALLS_MAX,
			.wait_us = wait_us,
		};

		made = ioctl(pool->device, TIDEPOOL_IOC_CALL, &some);
		if (made < 0)
			return done ? (ssize_t)done : -1;
		done += made;
		if (made < (int)some.count)
			break;
	}
	return done;
}

/* ---- keys ---- */

/* Shows the keys of a buffer, each behind its length; notes the last one in @keys. */
static int show(struct tidepool_keys *keys, const unsigned char *buffer, unsigned char *after,
		int (*see)(const void *key, size_t key_size, void *context), void *context)
{
	int verdict = 0;

	for (uint32_t at = 0; at < keys->used && !verdict; at += 1 + buffer[at]) {
		keys->after_size = buffer[at];
		memcpy(after, buffer + at + 1, buffer[at]);
		verdict = see(after, keys->after_size, context);
	}
	return verdict;
}

int tidepool_each(tidepool_pool *pool, int (*see)(const void *key, size_t key_size, void *context), void *context)
{
	unsigned char after[TIDEPOOL_KEY_MAX], *buffer = malloc(KEYS_SIZE);
	struct tidepool_keys keys = {
		.after = (uintptr_t)after,
		.buffer = (uintptr_t)buffer,
		.size = KEYS_SIZE,
	};
	int verdict;

	if (!buffer)
		return -1;
	do {
		verdict = ioctl(pool->device, TIDEPOOL_IOC_KEYS, &keys);
		if (!verdict)
			verdict = show(&keys, buffer, after, see, context);
	} while (!verdict && keys.used);
	free(buffer);
	return verdict;
}

/* ---- errors ---- */

static const struct {
	int error;
	const char *text;
} texts[] = {
	{ ENOENT, "there is no such value, pool name, directory or /dev/tidepool" },
	{ EMSGSIZE, "the value is larger than the buffer" },
	{ EINVAL, "a key has 1 to 250 bytes, a name up to 63 of printable ASCII, a mode 0666 at most, "
		  "a kept pool a directory and a quota of at least two pages" },
	{ E2BIG, "a value has 2 MiB at most" },
	{ EDQUOT, "the quota of the pool, of the user or of the machine is full" },
	{ ENOTCONN, "no lender takes pages" },
	{ EAGAIN, "lenders are too slow, or memory is too short" },
	{ EEXIST, "another user has a pool of that name, or it is of the other kind" },
	{ EACCES, "the mode of the pool, of /dev/tidepool or of a kept pool's directory does not let you in" },
	{ EBADF, "you may only read from the pool, and not change it; or only put, and not read" },
	{ EPERM, "the pool is somebody else's" },
	{ ENOSPC, "the file of the kept pool is full, or the disk is" },
	{ EIO, "the disk of the kept pool has lost something" },
	{ EFBIG, "the file of the kept pool is larger than a program or a disk may have one" },
	{ EOPNOTSUPP, "the directory of a kept pool has to be on a disk of this machine, and its file allocated" },
	{ EPROTONOSUPPORT, "the kernel module and this library are of different versions" },
};

const char *tidepool_strerror(int error)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error";
}
