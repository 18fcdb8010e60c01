// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/tidepool: threads that put, get and delete the same keys, and know of each key what
 * may come: what was put last, or what was being put meanwhile, or nothing. And single
 * calls, for what each of them says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../uapi/tidepool.h"
#include "stress.h"

#define DEVICE		"/dev/tidepool"
#define VERSION_SIZE	8L		/* bytes of a value that say which one it is */
#define SMALL_MOST	2100		/* just more than what shares a page */
#define MANY		20		/* gets at once: more than are under way together */

/* When a value may be gone by its time, and when it has to be. */
struct life {
	double least, most;
};

static struct {
	int fd;
	long keys, most, expire_ms;
	long gets;			/* among ten calls */
	uint64_t *begun, *done;		/* versions, by key; odd ones are deletions */
	struct life *lives;		/* likewise, of what was put last */
	char *busy;			/* a key that somebody changes */
	bool kept, uring;
	uint32_t wait_us;		/* of gets that are tried */
} all;

static double until;
static unsigned long enough;		/* changes */
static unsigned long put, got, hits, late, deleted, full;

/* ---- single calls ---- */

/* By io_uring, a ring for each thread. */
static int make_call_in_ring(int fd, struct tidepool_call *call)
{
	const struct tidepool_uring command = { .call = (uintptr_t)call };
	static __thread struct uring *ring;
	int made;

	if (!ring)
		ring = uring_new();
	do {
		made = uring_command(ring, fd, TIDEPOOL_URING_CALL, &command, sizeof(command));
	} while (made == -EINTR);
	return made ?: call->result;
}

static int make_call(int fd, struct tidepool_call *call)
{
	struct tidepool_calls calls = { .calls = (uintptr_t)call, .count = 1, .wait_us = all.wait_us };

	if (all.uring)
		return make_call_in_ring(fd, call);
	return ioctl(fd, TIDEPOOL_IOC_CALL, &calls) == 1 ? call->result : -errno;
}

int value_call(int fd, uint32_t what, const void *key, size_t key_size, void *value, uint32_t *size, long expire_ms)
{
	struct tidepool_call call = {
		.what = what,
		.key = (uintptr_t)key,
		.key_size = key_size,
		.value = (uintptr_t)value,
		.value_size = *size,
		.expire_ms = expire_ms,
	};
	int result = make_call(fd, &call);

	*size = call.value_size;
	return result;
}

/* spill=PATH: of a kept pool; spill=join: of one that is there. */
static void want_kept(struct tidepool_open *how)
{
	const char *path = option_text("spill", "");

	all.kept = *path;
	if (!all.kept)
		return;
	how->flags = TIDEPOOL_KEPT;
	how->spill = strcmp(path, "join") ? open_or_die(path, option("spill_open", O_RDWR)) : -1;
}

int value_pool(const char *name, unsigned int mode, unsigned long quota)
{
	struct tidepool_open how = { .api = option("api", TIDEPOOL_API), .mode = mode, .quota = quota };
	int fd = open_or_die(DEVICE, option("open", O_RDWR));

	all.uring = option("uring", 0);
	all.wait_us = option("wait_us", 0);
	if (option("unopened", 0))
		return fd;
	want_kept(&how);
	strncpy(how.name, name, sizeof(how.name) - 1);
	if (!ioctl(fd, TIDEPOOL_IOC_OPEN, &how)) {
		if (option("spill_then", 0) && fcntl(how.spill, F_SETFL, option("spill_then", 0)))
			die("spill_then");
		return fd;
	}
	printf("%s\n", strerrorname_np(errno));
	exit(2);
}

/* ---- what a value is ---- */

/* Any size, small ones mostly; those of less than VERSION_SIZE bytes say nothing. */
long value_size(uint64_t version, long most)
{
	uint64_t state = version * 0x9e3779b97f4a7c15u + 1;
	uint64_t any = random_next(&state);

	if (random_next(&state) % 8 && most > SMALL_MOST)
		most = SMALL_MOST;
	return VERSION_SIZE + any % (most - VERSION_SIZE);
}

void value_make(char *value, long key, uint64_t version, long size)
{
	uint64_t state = version << 20 ^ key;

	memcpy(value, &version, VERSION_SIZE);
	for (long i = VERSION_SIZE; i < size; i += sizeof(uint64_t)) {
		uint64_t word = random_next(&state);

		memcpy(value + i, &word, size - i < 8 ? size - i : 8);
	}
}

void value_wrong(long key, uint64_t version, const char *how)
{
	struct page page = { .word = { 0 } };

	page_wrong(&page, key, 0, version, how);
}

uint64_t value_version(const char *value)
{
	uint64_t version;

	memcpy(&version, value, VERSION_SIZE);
	return version;
}

bool value_is(const char *value, long size, char *made, long key, uint64_t version, long most)
{
	if (size != value_size(version, most))
		return false;
	value_make(made, key, version, size);
	return !memcmp(value, made, size);
}

static void value_check(const char *value, char *made, long key, long size, uint64_t least, uint64_t most)
{
	uint64_t version = value_version(value);

	if (version < least || version > most || version & 1) {
		value_wrong(key, version, version < least ? "older than what was put" : "nobody has put it");
		return;
	}
	if (!value_is(value, size, made, key, version, all.most))
		value_wrong(key, version, "not what was put");
}

/* ---- the mixture ---- */

/* What is kept is there from when it was put until somebody deletes it, or its time is over. */
static void missing_check(long key, uint64_t least, uint64_t most, struct life life)
{
	if (all.kept && least && least == most && !(least & 1) && (!all.expire_ms || now() < life.least))
		value_wrong(key, least, "it is not there");
}

/* A get began at a time; nobody had put anything else when it was over. */
static void life_check(long key, uint64_t version, struct life life, double began)
{
	if (all.expire_ms && began > life.most)
		value_wrong(key, version, "its time was over");
}

/* A get, and what was known of its key before. */
struct asked {
	long key;
	uint64_t least;
	struct life life;
	double began;
	struct tidepool_call call;
};

static void asked_begin(struct asked *one, long key, char *value, uint32_t what)
{
	one->key = key;
	one->least = __atomic_load_n(&all.done[key], __ATOMIC_ACQUIRE);
	one->life = all.lives[key];
	one->began = now();
	one->call = (struct tidepool_call) {
		.what = what,
		.key = (uintptr_t)&one->key,
		.key_size = sizeof(one->key),
		.value = (uintptr_t)value,
		.value_size = all.most,
	};
}

static void asked_end(const struct asked *one, char *made)
{
	uint64_t most = __atomic_load_n(&all.begun[one->key], __ATOMIC_ACQUIRE);
	int result = one->call.result;

	if (result == -EAGAIN && one->call.what == TIDEPOOL_TRY_GET) {
		__sync_fetch_and_add(&late, 1);
		return;
	}
	__sync_fetch_and_add(&got, 1);
	if (!result) {
		__sync_fetch_and_add(&hits, 1);
		value_check((char *)one->call.value, made, one->key, one->call.value_size, one->least, most);
		if (one->least == most)
			life_check(one->key, one->least, one->life, one->began);
	} else if (result == -ENOENT) {
		missing_check(one->key, one->least, most, one->life);
	} else {
		errno = -result;
		io_failed("get");
	}
}

static void get_one(long key, char *value, char *made)
{
	struct asked one;

	asked_begin(&one, key, value, TIDEPOOL_GET);
	one.call.result = make_call(all.fd, &one.call);
	asked_end(&one, made);
}

/* Some are used often: what is seldom put anew keeps the pages that it shares. */
static long any_key(uint64_t *state)
{
	return random_next(state) % (random_next(state) % 4 ? all.keys / 8 : all.keys);
}

/* Several at once, tried or not, the same key twice perhaps; whoever tries waits a moment, or not at all. */
static void get_many(uint64_t *state, char *values, char *made)
{
	struct tidepool_calls calls = { .count = 2 + random_next(state) % (MANY - 1), .wait_us = random_next(state) % 3 * 500 };
	struct tidepool_call call[MANY];
	struct asked asked[MANY];

	for (uint32_t i = 0; i < calls.count; i++) {
		asked_begin(&asked[i], any_key(state), values + i * (all.most + 8),
			    random_next(state) % 2 ? TIDEPOOL_GET : TIDEPOOL_TRY_GET);
		call[i] = asked[i].call;
	}
	calls.calls = (uintptr_t)call;
	if (ioctl(all.fd, TIDEPOOL_IOC_CALL, &calls) != (int)calls.count)
		io_failed("gets");
	for (uint32_t i = 0; i < calls.count; i++) {
		asked[i].call = call[i];
		asked_end(&asked[i], made);
	}
}

static void change_one(long key, char *value, bool delete)
{
	uint64_t version = (all.begun[key] / 2 + 1) * 2 + delete;
	uint32_t size = delete ? 0 : value_size(version, all.most);
	struct life life;
	int result;

	__atomic_store_n(&all.begun[key], version, __ATOMIC_SEQ_CST);
	if (!delete)
		value_make(value, key, version, size);
	life.least = now() + all.expire_ms / 1e3;
	result = value_call(all.fd, delete ? TIDEPOOL_DELETE : TIDEPOOL_PUT, &key, sizeof(key), value, &size,
			 delete ? 0 : all.expire_ms);
	life.most = now() + all.expire_ms / 1e3;
	if (!result || (delete && result == -ENOENT)) {
		all.lives[key] = life;
		__atomic_store_n(&all.done[key], version, __ATOMIC_RELEASE);
		__sync_fetch_and_add(delete ? &deleted : &put, 1);
	} else if (result == -EDQUOT || result == -ENOTCONN || result == -EAGAIN || result == -ENOSPC) {
		__sync_fetch_and_add(&full, 1);
	} else {
		errno = -result;
		io_failed("change");
	}
}

static void *mix(void *number)
{
	uint64_t state = random_seed((long)number);
	char *value = malloc(MANY * (all.most + 8)), *made = malloc(all.most + 8);

	while (!time_is_up(until) && put + deleted + full < enough) {
		long key = any_key(&state);

		if ((long)(random_next(&state) % 10) < all.gets) {
			if (all.uring || random_next(&state) % 4)
				get_one(key, value, made);
			else
				get_many(&state, value, made);
		} else if (!__atomic_test_and_set(&all.busy[key], __ATOMIC_ACQUIRE)) {
			change_one(key, value, !(random_next(&state) % 8));
			__atomic_clear(&all.busy[key], __ATOMIC_RELEASE);
		}
	}
	free(value);
	free(made);
	return NULL;
}

static struct tidepool_stats stats_of(int fd)
{
	struct tidepool_stats stats;

	if (ioctl(fd, TIDEPOOL_IOC_STATS, &stats))
		die("stats");
	return stats;
}

/*
 * stress values POOL [keys=1000] [threads=4] [seconds=5] [changes=N] [most=70000] [quota=0] [spill=FILE] [uring=0]
 * [gets=5] [expire_ms=0]; POOL is - for a private one, and gets are so many of ten calls.
 */
int mode_values(const char *pool)
{
	struct tidepool_stats stats;

	all.keys = option("keys", 1000);
	all.most = option("most", 70000);
	all.gets = option("gets", 5);
	all.expire_ms = option("expire_ms", 0);
	all.fd = value_pool(strcmp(pool, "-") ? pool : "", 0600, option("quota", 0));
	all.begun = calloc(all.keys, sizeof(*all.begun));
	all.done = calloc(all.keys, sizeof(*all.done));
	all.lives = calloc(all.keys, sizeof(*all.lives));
	all.busy = calloc(all.keys, 1);
	until = now() + option("seconds", 5);
	enough = option("changes", 0) ?: LONG_MAX;
	run_threads(option("threads", 4), mix);
	stats = stats_of(all.fd);
	printf("{\"mode\": \"values\", \"puts\": %lu, \"gets\": %lu, \"hits\": %lu, \"late\": %lu, \"deletes\": %lu, \"full\": %lu, ",
	       put, got, hits, late, deleted, full);
	printf("\"values\": %llu, \"value_bytes\": %llu, \"bytes\": %llu, \"moved\": %llu, \"lost\": %llu, \"spilled\": %llu, \"local\": %llu, ",
	       stats.values, stats.value_bytes, stats.bytes, stats.moved, stats.lost, stats.spilled, stats.local);
	printf("\"wrong_pages\": %lu, \"errors\": %lu}\n", wrong_pages(), io_errors());
	return verdict();
}

static const char *const names[] = { NULL, "put", "get", "delete", "exists", "try", "try-get" };

/* Which call has that name; 0: none. */
static uint32_t named(const char *name)
{
	for (uint32_t what = 1; what < sizeof(names) / sizeof(names[0]); what++)
		if (!strcmp(name, names[what]))
			return what;
	return 0;
}

/*
 * stress repeat POOL what=put|get|exists [keys=1] [size=4096] [requests=1000]: one call again and again, with each of some
 * keys in turn, whose values were put before.
 */
int mode_repeat(const char *pool)
{
	uint32_t size = option("size", 4096), what = named(option_text("what", "get")), room;
	int fd = value_pool(strcmp(pool, "-") ? pool : "", 0600, 0);
	long keys = option("keys", 1), requests = option("requests", 1000);
	char *value = calloc(1, size);

	for (long i = 0; i < keys + requests; i++) {
		long key = i % keys;
		int result;

		value_make(value, key, 1, i < keys ? size : 0);
		do {	/* a put, until the lender takes it */
			room = size;
			result = value_call(fd, i < keys ? TIDEPOOL_PUT : what, &key, sizeof(key), value, &room, 0);
		} while (result == -EAGAIN);
		if (result) {
			errno = -result;
			die("call");
		}
	}
	printf("{\"mode\": \"repeat\", \"requests\": %ld}\n", requests);
	return 0;
}

/* ---- a script ---- */

static const char *outcome(int result)
{
	return result ? strerrorname_np(-result) : "ok";
}

/* Memory that is read from a file when it is used. */
static char *map_file(const char *path, size_t size)
{
	int fd = open_or_die(path, O_RDONLY);
	char *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (memory == MAP_FAILED || madvise(memory, size, MADV_RANDOM))
		die("mmap");
	return memory;
}

/* TEXT again and again, or what is in the file from=. */
static char *value_to_put(const char *text, uint32_t size)
{
	const char *path = option_text("from", "");
	char *value = *path ? map_file(path, size) : calloc(1, size + 1);

	for (uint32_t i = 0; !*path && i < size; i++)
		value[i] = text[i % strlen(text)];
	return value;
}

/* WHAT KEY VALUE: a put's value has size= bytes; a get has room= bytes. */
static void say_call(int fd, uint32_t what, const char *key, const char *text)
{
	bool is_put = what == TIDEPOOL_PUT || what == TIDEPOOL_TRY_PUT;
	uint32_t size = is_put ? option("size", strlen(text)) : option("room", 1000);
	char *value = is_put ? value_to_put(text, size) : calloc(1, size + 1);
	size_t key_size = option("key_size", strlen(key));
	char *long_key = calloc(1, key_size + strlen(key) + 1);

	strcpy(long_key, key);
	printf("%s", outcome(value_call(fd, what, option("key_fault", 0) ? (void *)16 : long_key, key_size,
				     option("fault", 0) ? (void *)16 : value, &size, option("expire_ms", 0))));
	if (what == TIDEPOOL_GET || what == TIDEPOOL_TRY_GET || what == TIDEPOOL_EXISTS)
		printf(" %u", size);
	if (what == TIDEPOOL_GET)
		printf(" %.20s", value);
	printf("\n");
}

static void say_keys(int fd)
{
	char buffer[TIDEPOOL_KEY_MAX + 1], after[TIDEPOOL_KEY_MAX];
	struct tidepool_keys keys = { .after = (uintptr_t)after, .buffer = (uintptr_t)buffer, .size = sizeof(buffer) };

	for (;;) {
		if (ioctl(fd, TIDEPOOL_IOC_KEYS, &keys))
			die("keys");
		if (!keys.used)
			return;
		for (uint32_t at = 0; at < keys.used; at += 1 + keys.after_size) {
			keys.after_size = (unsigned char)buffer[at];
			memcpy(after, buffer + at + 1, keys.after_size);
			printf("%.*s\n", (int)keys.after_size, after);
		}
	}
}

static void say_stats(int fd)
{
	struct tidepool_stats stats;

	if (ioctl(fd, TIDEPOOL_IOC_STATS, &stats)) {
		printf("%s\n", strerrorname_np(errno));
		return;
	}
	printf("{\"quota\": %llu, \"bytes\": %llu, \"values\": %llu, \"value_bytes\": %llu, \"hits\": %llu, ",
	       stats.quota, stats.bytes, stats.values, stats.value_bytes, stats.hits);
	printf("\"misses\": %llu, \"lost\": %llu, \"puts\": %llu, \"expired\": %llu, \"spilled\": %llu, \"local\": %llu, ",
	       stats.misses, stats.lost, stats.puts, stats.expired, stats.spilled, stats.local);
	printf("\"front_bytes\": %llu}\n", stats.front_bytes);
}

/* COUNT puts of values that nobody has. */
static void say_fail(int fd, long count)
{
	uint32_t size = TIDEPOOL_VALUE_MAX;
	int result = 0;

	while (count--)
		result = value_call(fd, TIDEPOOL_PUT, "none", 4, (void *)16, &size, 0);
	printf("%s\n", outcome(result));
}

/* Opens a pool with a descriptor that has one, perhaps. */
static void say_open(int fd, const char *name)
{
	struct tidepool_open how = { .api = TIDEPOOL_API, .mode = 0600 };

	strncpy(how.name, name, sizeof(how.name) - 1);
	printf("%s\n", outcome(ioctl(fd, TIDEPOOL_IOC_OPEN, &how) ? -errno : 0));
}

static void say_poll(int fd)
{
	struct pollfd waits = { .fd = fd, .events = POLLIN | POLLOUT };
	struct epoll_event event = { .events = EPOLLIN };

	printf("%s ", poll(&waits, 1, 0) ? "ready" : "not ready");
	printf("%s\n", outcome(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event) ? -errno : 0));
}

static void say(int fd, char *line)
{
	const char *what = strtok(line, " \n"), *key = strtok(NULL, " \n"), *value = strtok(NULL, " \n");

	if (what && named(what))
		say_call(fd, named(what), key, value ? value : "");
	if (what && !strcmp(what, "keys"))
		say_keys(fd);
	if (what && !strcmp(what, "stats"))
		say_stats(fd);
	if (what && !strcmp(what, "unlink"))
		printf("%s\n", outcome(ioctl(fd, TIDEPOOL_IOC_UNLINK) ? -errno : 0));
	if (what && !strcmp(what, "open"))
		say_open(fd, key ? key : "");
	if (what && !strcmp(what, "pool"))	/* with a descriptor of its own, which stays open */
		say_open(open_or_die(DEVICE, O_RDWR), key ? key : "");
	if (what && !strcmp(what, "fail"))
		say_fail(fd, atol(key));
	if (what && !strcmp(what, "poll"))
		say_poll(fd);
	if (what && !strcmp(what, "sleep"))
		usleep(atol(key) * 1000);
	fflush(stdout);
}

/*
 * stress value POOL [mode=0600] [quota=0] [user=UID] [unopened=1] ...: does what its input says, and says what came of it.
 */
int mode_value(const char *pool)
{
	char line[4096];
	int fd;

	if (option("user", 0) && (setgid(option("user", 0)) || setuid(option("user", 0))))
		die("setuid");
	fd = value_pool(strcmp(pool, "-") ? pool : "", strtol(option_text("mode", "0600"), NULL, 8), option("quota", 0));
	while (fgets(line, sizeof(line), stdin))
		say(fd, line);
	return 0;
}
