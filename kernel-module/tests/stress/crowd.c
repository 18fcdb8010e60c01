// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/tidepool: programs that put, get and delete the same keys of one pool at the same
 * time, and are killed meanwhile. A clock that they share ticks whenever a change begins or
 * is over. So a get knows what may come: no value whose put was over before another change
 * of that key began that was over before the get. What a program was doing when it was
 * killed was done, or was not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../uapi/tidepool.h"
#include "stress.h"

#define PROGRAMS	6
#define KEYS_MOST	256L
#define TICKS_MOST	(1u << 21)
#define KILL_US		100000

/* What a program is doing; @version is when it began, 0: nothing. */
struct change {
	uint64_t version;
	long key;
	bool delete;
};

/**
 * struct crowd - what all know
 * @tick: the clock
 * @last: by key: of all changes that are over, the one that began last
 * @gone: by key: when it was deleted last
 * @over: by version: when its put was over; 0: not yet
 * @doing: by program
 */
static struct crowd {
	uint64_t tick;
	uint64_t last[KEYS_MOST], gone[KEYS_MOST];
	uint64_t over[TICKS_MOST];
	struct change doing[PROGRAMS];
	unsigned long puts, gets, hits, deletes, refused, killed;
} *all;

static struct {
	int fd;
	long keys, most;
	bool kept;
	char *value, *made;
} own;

/* ---- the clock ---- */

static uint64_t seen(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void set(uint64_t *at, uint64_t to)
{
	__atomic_store_n(at, to, __ATOMIC_SEQ_CST);
}

static void raise_to(uint64_t *at, uint64_t to)
{
	uint64_t was = seen(at);

	while (was < to && !__atomic_compare_exchange_n(at, &was, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static uint64_t tick(void)
{
	return __atomic_add_fetch(&all->tick, 1, __ATOMIC_SEQ_CST);
}

static bool is_over(double until)
{
	return time_is_up(until) || seen(&all->tick) + 2 * PROGRAMS >= TICKS_MOST;
}

/* ---- gets ---- */

static void value_check(long key, long size, uint64_t least)
{
	uint64_t version = value_version(own.value), over;

	if (!version || version > seen(&all->tick) || !value_is(own.value, size, own.made, key, version, own.most)) {
		value_wrong(key, version, "nobody has put it");
		return;
	}
	over = seen(&all->over[version]);
	if (over && over < least)
		value_wrong(key, version, "older than what was put");
}

/* Was it deleted since that change began, perhaps? */
static bool may_be_gone(long key, uint64_t least)
{
	for (long i = 0; i < PROGRAMS; i++) {
		const struct change *change = &all->doing[i];

		if (seen(&change->version) && change->delete && change->key == key)
			return true;
	}
	return seen(&all->gone[key]) > least;
}

static void get_one(long key)
{
	uint64_t least = seen(&all->last[key]);
	uint32_t size = own.most;
	int result = value_call(own.fd, TIDEPOOL_GET, &key, sizeof(key), own.value, &size, 0);

	__sync_fetch_and_add(&all->gets, 1);
	if (!result) {
		__sync_fetch_and_add(&all->hits, 1);
		value_check(key, size, least);
	} else if (result != -ENOENT) {
		errno = -result;
		io_failed("get");
	} else if (own.kept && least && !may_be_gone(key, least)) {
		value_wrong(key, least, "it is not there");
	}
}

/* ---- changes ---- */

static int change_make(const struct change *change)
{
	uint32_t size = 0;

	if (change->delete)
		return value_call(own.fd, TIDEPOOL_DELETE, &change->key, sizeof(change->key), NULL, &size, 0);
	size = value_size(change->version, own.most);
	value_make(own.value, change->key, change->version, size);
	return value_call(own.fd, TIDEPOOL_PUT, &change->key, sizeof(change->key), own.value, &size, 0);
}

/* When it was over, if it was done. */
static void change_ends(struct change *change)
{
	uint64_t over = tick();

	if (change->delete)
		raise_to(&all->gone[change->key], over);
	else
		set(&all->over[change->version], over);
}

static void change_one(struct change *change, long key, bool delete)
{
	uint64_t version = tick();
	int result;

	change->key = key;
	change->delete = delete;
	set(&change->version, version);
	result = change_make(change);
	if (!result || (delete && result == -ENOENT)) {
		change_ends(change);
		raise_to(&all->last[key], version);
		__sync_fetch_and_add(delete ? &all->deletes : &all->puts, 1);
	} else if (result == -EDQUOT || result == -ENOTCONN || result == -EAGAIN || result == -ENOSPC) {
		__sync_fetch_and_add(&all->refused, 1);
	} else {
		errno = -result;
		io_failed("change");
	}
	set(&change->version, 0);
}

/* ---- programs ---- */

static void program(const char *pool, long number, double until)
{
	uint64_t state = random_seed(getpid());

	own.fd = value_pool(pool, 0600, option("quota", 0));
	while (!is_over(until) && !verdict()) {
		long key = random_next(&state) % own.keys;

		if (random_next(&state) % 2)
			get_one(key);
		else
			change_one(&all->doing[number], key, !(random_next(&state) % 8));
	}
	fflush(stdout);
	_exit(verdict());
}

static pid_t program_begin(const char *pool, long number, double until)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid)
		program(pool, number, until);
	return pid;
}

/* Whether it had found all right. What it was doing is over now, if it was done; its key is looked at. */
static bool program_kill(pid_t pid, long number)
{
	struct change *change = &all->doing[number];
	int status;

	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	if (change->version) {
		change_ends(change);
		get_one(change->key);
	}
	set(&change->version, 0);
	return !WIFEXITED(status) || !WEXITSTATUS(status);
}

static void crowd_prepare(const char *pool)
{
	own.keys = option("keys", 40);
	own.most = option("most", 9000);
	own.kept = *option_text("spill", "");
	own.value = malloc(own.most + 8);
	own.made = malloc(own.most + 8);
	if (own.keys > KEYS_MOST)
		die("keys");
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		die("mmap");
	own.fd = value_pool(pool, 0600, option("quota", 0));
}

/* Kills one after the other, and begins another in its place; in how many something was wrong. */
static unsigned long crowd_run(const char *pool, double until)
{
	unsigned long wrong = 0;
	pid_t pids[PROGRAMS];

	for (long i = 0; i < PROGRAMS; i++)
		pids[i] = program_begin(pool, i, until);
	for (long i = 0; !is_over(until) && !wrong; i = (i + 1) % PROGRAMS) {
		usleep(KILL_US);
		wrong += !program_kill(pids[i], i);
		pids[i] = program_begin(pool, i, until);
		all->killed++;
	}
	for (long i = 0; i < PROGRAMS; i++)
		wrong += !program_kill(pids[i], i);
	return wrong;
}

/*
 * stress crowd POOL [keys=40] [seconds=20] [most=9000] [quota=0] [spill=FILE]: the pool's name is taken away at the end.
 */
int mode_crowd(const char *pool)
{
	unsigned long wrong;

	crowd_prepare(pool);
	wrong = crowd_run(pool, now() + option("seconds", 20));
	for (long key = 0; key < own.keys; key++)
		get_one(key);
	if (ioctl(own.fd, TIDEPOOL_IOC_UNLINK))
		io_failed("unlink");
	printf("{\"mode\": \"crowd\", \"puts\": %lu, \"gets\": %lu, \"hits\": %lu, \"deletes\": %lu, \"refused\": %lu, \"killed\": %lu, ",
	       all->puts, all->gets, all->hits, all->deletes, all->refused, all->killed);
	printf("\"wrong_pages\": %lu, \"errors\": %lu}\n", wrong + wrong_pages(), io_errors());
	return wrong ? 1 : verdict();
}
