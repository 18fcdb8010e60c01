// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/tidepool from programs that mean no good, or nothing: threads share descriptors and
 * memory, and make calls that are right, almost right, or rubbish. What a call points to
 * is changed and taken away while it is made. No answer is wrong here; the kernel says if
 * something is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../uapi/tidepool.h"
#include "stress.h"

#define DEVICE		"/dev/tidepool"
#define DESCRIPTORS	8
#define ARENA		(4u << 20)
#define NAMES		4
#define KEYS		40
#define SPILL_SIZE	(1u << 20)
#define ERRNOS		134
#define MOST_CALLS	40		/* at once */

static int device[DESCRIPTORS];
static char *arena;			/* with a page behind it that nobody may touch */
static const char *spill;
static double until;
static unsigned long enough, made, done;
static unsigned long said[ERRNOS];	/* how often, by errno */

static unsigned int below(uint64_t *state, unsigned int most)
{
	return random_next(state) % most;
}

static bool one_in(uint64_t *state, unsigned int many)
{
	return !below(state, many);
}

/* ---- memory ---- */

/* Any address in the arena; seldom its end, or none at all. */
static void *somewhere(uint64_t *state)
{
	static void *const bad[] = { NULL, (void *)16, (void *)-16L, (void *)(1UL << 63), (void *)0xffff888000000000UL };

	if (one_in(state, 16))
		return bad[below(state, sizeof(bad) / sizeof(bad[0]))];
	if (one_in(state, 8))
		return arena + ARENA - below(state, 300);
	return arena + below(state, ARENA - 4096) / (one_in(state, 4) ? 1 : 8) * 8;
}

/* Writes to memory that is there perhaps: as the kernel would, by a pipe. */
static void store(void *to, const void *from, size_t size)
{
	static __thread int pipes[2];
	char rest[4096];
	ssize_t got;
	size_t left;

	if (!pipes[1] && pipe(pipes))
		die("pipe");
	if (write(pipes[1], from, size) != (ssize_t)size)
		die("pipe");
	got = read(pipes[0], to, size);
	left = size - (got < 0 ? 0 : got);
	if (left && read(pipes[0], rest, left) != (ssize_t)left)
		die("pipe");
}

/* What others use is changed, becomes read-only, or goes for a moment. */
static void disturb(uint64_t *state)
{
	char *page = arena + below(state, ARENA / 4096) * 4096L;
	uint64_t word = random_next(state);

	switch (below(state, 4)) {
	case 0:
		madvise(page, 4096, MADV_DONTNEED);
		break;
	case 1:
		mprotect(page, 4096, PROT_READ);
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
		break;
	case 2:
		mprotect(page, 4096, PROT_NONE);
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
		break;
	default:
		store(page + below(state, 4096 - 8), &word, sizeof(word));
	}
}

/* ---- calls ---- */

static uint32_t any_size(uint64_t *state)
{
	static const uint32_t odd[] = { 0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 65536, 65537, TIDEPOOL_VALUE_MAX,
					TIDEPOOL_VALUE_MAX + 1, 1u << 31, UINT32_MAX };

	if (one_in(state, 12))
		return odd[below(state, sizeof(odd) / sizeof(odd[0]))];
	return below(state, one_in(state, 8) ? 100000 : 3000);
}

/* A key that others use, too; seldom one of any bytes and any size. */
static void any_key(uint64_t *state, struct tidepool_call *call)
{
	char key[16];

	call->key_size = one_in(state, 16) ? below(state, 300) : 8;
	call->key = (uintptr_t)somewhere(state);
	memset(key, 0, sizeof(key));
	snprintf(key, sizeof(key), "key%05u", below(state, KEYS));
	if (!one_in(state, 16))
		store((void *)call->key, key, 8);
}

static struct tidepool_call any_call(uint64_t *state)
{
	struct tidepool_call call = {
		.what = one_in(state, 32) ? (uint32_t)random_next(state) : 1 + below(state, 6),
		.value = (uintptr_t)somewhere(state),
		.value_size = any_size(state),
		.expire_ms = one_in(state, 4) ? below(state, 50) : 0,
	};

	if (one_in(state, 32))
		call.expire_ms = random_next(state);
	any_key(state, &call);
	return call;
}

static int ask(int fd, unsigned long command, void *argument)
{
	int result = ioctl(fd, command, argument);

	return result < 0 ? -errno : result;
}

/* A few, or more than are made together; but for the first one they are counted here. */
static int calls(uint64_t *state, int fd)
{
	struct tidepool_calls calls = {
		.calls = (uintptr_t)somewhere(state),
		.count = 1 + below(state, one_in(state, 4) ? MOST_CALLS : 4),
		.wait_us = below(state, 2) * 200,
	};
	int result;

	__sync_fetch_and_add(&made, calls.count - 1);

	for (unsigned int i = 0; i < calls.count; i++) {
		struct tidepool_call call = any_call(state);

		store((struct tidepool_call *)calls.calls + i, &call, sizeof(call));
	}
	if (one_in(state, 64))
		calls.count = random_next(state);
	if (one_in(state, 64))
		calls.wait_us = random_next(state);
	result = ask(fd, TIDEPOOL_IOC_CALL, one_in(state, 64) ? somewhere(state) : &calls);
	if (result > 1)
		__sync_fetch_and_add(&done, result - 1);
	return result;
}

static int call_in_ring(uint64_t *state, int fd)
{
	static __thread struct uring *ring;
	struct tidepool_call call = any_call(state);
	struct tidepool_uring command = { .call = (uintptr_t)somewhere(state) };

	if (!ring)
		ring = uring_new();
	store((void *)command.call, &call, sizeof(call));
	command.reserved = one_in(state, 32) ? random_next(state) : 0;
	return uring_command(ring, fd, one_in(state, 32) ? (uint32_t)random_next(state) : TIDEPOOL_URING_CALL, &command,
			     sizeof(command));
}

static int keys(uint64_t *state, int fd)
{
	struct tidepool_keys keys = {
		.after = (uintptr_t)somewhere(state),
		.buffer = (uintptr_t)somewhere(state),
		.after_size = one_in(state, 2) ? 0 : below(state, 260),
		.size = one_in(state, 8) ? (uint32_t)random_next(state) : 200 + below(state, 3000),
	};

	return ask(fd, TIDEPOOL_IOC_KEYS, one_in(state, 16) ? somewhere(state) : &keys);
}

static int open_pool(uint64_t *state, int fd)
{
	struct tidepool_open how = { .api = one_in(state, 64) ? 0 : TIDEPOOL_API, .mode = one_in(state, 16) ? 07777 : 0600 };
	int file = -1, result;

	if (!one_in(state, 3))
		snprintf(how.name, sizeof(how.name), "fuzz%u", below(state, NAMES));
	if (one_in(state, 32))
		memset(how.name, (int)random_next(state), sizeof(how.name));
	how.quota = one_in(state, 4) ? below(state, 1u << 20) : 0;
	if (*spill && one_in(state, 3)) {
		file = open(spill, O_TMPFILE | O_RDWR, 0600);
		if (file >= 0 && ftruncate(file, below(state, SPILL_SIZE)))
			io_failed("spill");
		how.flags = TIDEPOOL_KEPT;
		how.spill = one_in(state, 8) ? (int)random_next(state) : file;
	}
	result = ask(fd, TIDEPOOL_IOC_OPEN, one_in(state, 64) ? somewhere(state) : &how);
	if (file >= 0)
		close(file);
	return result;
}

/* Another one in its place: others may be using it. */
static int renew(uint64_t *state, int *slot)
{
	static const int modes[] = { O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY };
	int fd = open(DEVICE, modes[below(state, 5)]);

	if (fd < 0)
		die(DEVICE);
	if (dup2(fd, *slot) < 0)
		io_failed("dup2");
	close(fd);
	return open_pool(state, *slot);
}

static int anything_else(uint64_t *state, int fd)
{
	unsigned long command = one_in(state, 2) ? random_next(state) : _IOC(below(state, 4), 0xb7, 0x3e + below(state, 10),
									   below(state, 200));

	switch (below(state, 4)) {
	case 0:
		return ask(fd, TIDEPOOL_IOC_STATS, somewhere(state));
	case 1:
		return read(fd, somewhere(state), below(state, 10000)) < 0 ? -errno : 0;
	case 2:
		return lseek(fd, below(state, 2) ? 0 : below(state, 1000), SEEK_SET) < 0 ? -errno : 0;
	default:
		return ask(fd, command, somewhere(state));
	}
}

static int one_call(uint64_t *state)
{
	int *slot = &device[below(state, DESCRIPTORS)];

	switch (below(state, 32)) {
	case 0:
		return renew(state, slot);
	case 1:
		return open_pool(state, *slot);
	case 2:
		return one_in(state, 4) ? ask(*slot, TIDEPOOL_IOC_UNLINK, NULL) : keys(state, *slot);
	case 3:
		return anything_else(state, *slot);
	case 4 ... 7:
		return call_in_ring(state, *slot);
	default:
		return calls(state, *slot);
	}
}

static void *call_again(void *number)
{
	uint64_t state = random_seed((long)number);

	while (!time_is_up(until) && __sync_add_and_fetch(&made, 1) <= enough) {
		int result = one_call(&state);

		if (result >= 0)
			__sync_fetch_and_add(&done, 1);
		else if (-result < ERRNOS)
			__sync_fetch_and_add(&said[-result], 1);
		else
			io_failed("no errno");
		disturb(&state);
	}
	return NULL;
}

static void clean_up(void)
{
	for (unsigned int i = 0; i < NAMES; i++) {
		struct tidepool_open how = { .api = TIDEPOOL_API, .mode = 0600 };
		int fd = open_or_die(DEVICE, O_RDWR);

		snprintf(how.name, sizeof(how.name), "fuzz%u", i);
		if (ask(fd, TIDEPOOL_IOC_OPEN, &how) == -EEXIST) {
			how.flags = TIDEPOOL_KEPT;
			how.spill = -1;
			ask(fd, TIDEPOOL_IOC_OPEN, &how);
		}
		ask(fd, TIDEPOOL_IOC_UNLINK, NULL);
		close(fd);
	}
}

/* stress calls FOLDER|- [calls=N] [seconds=60] [threads=4] [seed=N]: kept pools have their files in FOLDER. */
int mode_calls(const char *folder)
{
	spill = strcmp(folder, "-") ? folder : "";
	arena = mmap(NULL, ARENA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED || mprotect(arena + ARENA, 4096, PROT_NONE))
		die("mmap");
	for (unsigned int i = 0; i < DESCRIPTORS; i++)
		device[i] = open_or_die(DEVICE, O_RDWR);
	enough = option("calls", 100000);
	until = now() + option("seconds", 60);
	run_threads(option("threads", 4), call_again);
	clean_up();
	printf("{\"mode\": \"calls\", \"calls\": %lu, \"done\": %lu, \"said\": {", made > enough ? enough : made, done);
	for (unsigned int i = 0, any = 0; i < ERRNOS; i++)
		if (said[i])
			printf("%s\"%s\": %lu", any++ ? ", " : "", strerrorname_np(i), said[i]);
	printf("}, \"errors\": %lu}\n", io_errors());
	return verdict();
}
