// SPDX-License-Identifier: Apache-2.0
/*
 * Every function of libtidepool, on a machine with a lender and a disk on /mnt:  check | check refused (without a lender) |
 * check posts (by who may only put)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tidepool.h>

#define LARGE		(1u << 20)
#define MANY		600u		/* more than go in one call */
#define VALUE		"a value"

static int failures;

#define CHECK(is) check(is, #is, __LINE__)

static void check(int is, const char *what, int line)
{
	if (is)
		return;
	printf("check.c:%d: not so: %s (%s)\n", line, what, strerror(errno));
	failures++;
}

static tidepool_pool *open_own(uint64_t quota)
{
	struct tidepool_limits limits = { .quota = quota };
	tidepool_pool *pool = tidepool_open(NULL, TIDEPOOL_EPHEMERAL, &limits);

	if (pool)
		return pool;
	printf("no pool: %s\n", tidepool_strerror(errno));
	exit(1);
}

static void check_values(tidepool_pool *pool)
{
	char buffer[100];
	void *value;

	CHECK(tidepool_put(pool, "key", 3, VALUE, sizeof(VALUE)) == 0);
	CHECK(tidepool_size(pool, "key", 3) == sizeof(VALUE));
	CHECK(tidepool_get(pool, "key", 3, buffer, sizeof(buffer)) == sizeof(VALUE) && !strcmp(buffer, VALUE));
	CHECK(tidepool_get(pool, "key", 3, buffer, 3) == -1 && errno == EMSGSIZE);
	CHECK(tidepool_get_new(pool, "key", 3, &value) == sizeof(VALUE) && !strcmp(value, VALUE));
	free(value);
	CHECK(tidepool_delete(pool, "key", 3) == 0);
	CHECK(tidepool_delete(pool, "key", 3) == -1 && errno == ENOENT);
	CHECK(tidepool_get(pool, "key", 3, buffer, sizeof(buffer)) == -1 && errno == ENOENT);
	CHECK(tidepool_size(pool, "key", 3) == -1 && errno == ENOENT);
	CHECK(tidepool_put(pool, "empty", 5, NULL, 0) == 0);
	CHECK(tidepool_get(pool, "empty", 5, NULL, 0) == 0);
	CHECK(tidepool_delete(pool, "empty", 5) == 0);
}

static void check_large(tidepool_pool *pool)
{
	char *large = malloc(LARGE);
	void *value = NULL;

	for (size_t i = 0; i < LARGE; i++)
		large[i] = i * 7 >> 3;
	CHECK(tidepool_put(pool, "large", 5, large, LARGE) == 0);
	CHECK(tidepool_get_new(pool, "large", 5, &value) == LARGE && !memcmp(value, large, LARGE));
	CHECK(tidepool_delete(pool, "large", 5) == 0);
	free(value);
	free(large);
}

static void check_time(tidepool_pool *pool)
{
	CHECK(tidepool_put_for(pool, "soon", 4, "gone", 4, 300) == 0);
	CHECK(tidepool_size(pool, "soon", 4) == 4);
	usleep(600000);
	CHECK(tidepool_size(pool, "soon", 4) == -1 && errno == ENOENT);
}

struct seen {
	tidepool_pool *pool;
	unsigned int keys, wrong;
};

static int see(const void *key, size_t key_size, void *context)
{
	struct seen *seen = context;
	char expected[20];

	snprintf(expected, sizeof(expected), "%05u", seen->keys++);
	seen->wrong += key_size != 5 || memcmp(key, expected, 5) || tidepool_delete(seen->pool, key, key_size);
	return 0;
}

static int stop(const void *key, size_t key_size, void *context)
{
	(void)key, (void)key_size;
	return ++*(int *)context == 3 ? 42 : 0;
}

static void check_many(tidepool_pool *pool)
{
	struct tidepool_call calls[MANY] = { };
	struct seen seen = { .pool = pool };
	struct tidepool_stats stats;
	char keys[MANY][20];
	int shown = 0;

	for (unsigned int i = 0; i < MANY; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%05u", i);
		calls[i].what = TIDEPOOL_PUT;
		calls[i].key = (uintptr_t)keys[i];
		calls[i].key_size = 5;
		calls[i].value = (uintptr_t)keys[i];
		calls[i].value_size = 5;
		calls[i].result = 1;
	}
	CHECK(tidepool_calls(pool, calls, MANY) == MANY);
	for (unsigned int i = 0; i < MANY; i++)
		CHECK(calls[i].result == 0);
	CHECK(tidepool_stats(pool, &stats) == 0 && stats.values == MANY && stats.value_bytes == 5 * MANY);
	CHECK(tidepool_each(pool, stop, &shown) == 42 && shown == 3);
	CHECK(tidepool_each(pool, see, &seen) == 0 && seen.keys == MANY && !seen.wrong);
	CHECK(tidepool_stats(pool, &stats) == 0 && stats.values == 0);
}

static void check_shared(void)
{
	struct tidepool_limits limits = { .mode = 0666 };
	tidepool_pool *one = tidepool_open("check", TIDEPOOL_EPHEMERAL, &limits);
	tidepool_pool *two = tidepool_open("check", TIDEPOOL_EPHEMERAL, NULL);
	char buffer[10];

	CHECK(one && two);
	CHECK(tidepool_put(one, "k", 1, "v", 1) == 0);
	CHECK(tidepool_get(two, "k", 1, buffer, sizeof(buffer)) == 1);
	CHECK(tidepool_unlink(two) == 0);
	CHECK(tidepool_unlink(two) == -1 && errno == ENOENT);
	tidepool_close(one);
	tidepool_close(two);
	tidepool_close(NULL);
}

static void check_bad(tidepool_pool *pool)
{
	char name[65] = "", *large = calloc(1, TIDEPOOL_VALUE_MAX + 1);
	tidepool_pool *little = open_own(4096 * 8);

	memset(name, 'n', 64);
	CHECK(!tidepool_open(name, TIDEPOOL_EPHEMERAL, NULL) && errno == EINVAL);
	CHECK(!tidepool_open("check", 2, NULL) && errno == EINVAL);
	CHECK(tidepool_put(pool, "", 0, "v", 1) == -1 && errno == EINVAL);
	CHECK(tidepool_put(pool, large, 251, "v", 1) == -1 && errno == EINVAL);
	CHECK(tidepool_put(pool, "k", (size_t)1 << 32 | 1, "v", 1) == -1 && errno == EINVAL);
	CHECK(tidepool_put(pool, "k", 1, large, TIDEPOOL_VALUE_MAX + 1) == -1 && errno == E2BIG);
	CHECK(tidepool_put(pool, "k", 1, large, (size_t)1 << 32 | 1) == -1 && errno == E2BIG);
	CHECK(tidepool_put(pool, "k", 1, (void *)16, 100) == -1 && errno == EFAULT);
	CHECK(tidepool_put(little, "k", 1, large, LARGE) == -1 && errno == EDQUOT);
	CHECK(tidepool_unlink(pool) == -1 && errno == ENOENT);
	CHECK(strstr(tidepool_strerror(EDQUOT), "quota") && tidepool_strerror(EFAULT) && tidepool_strerror(99999));
	tidepool_close(little);
	free(large);
}

/* A file that is too large is refused; no signal ends the program, which may have no file as large as others have. */
static void check_too_large(void)
{
	struct tidepool_limits limits = { .quota = UINT64_MAX, .spill = "/mnt" };
	struct rlimit before, less;

	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, &limits) && errno == EFBIG);
	CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
	less = before;
	less.rlim_cur = LARGE / 2;
	CHECK(setrlimit(RLIMIT_FSIZE, &less) == 0);
	limits.quota = LARGE;
	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, &limits) && errno == EFBIG);
	CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

/* A value is there, whoever lends. */
static void check_kept(void)
{
	struct tidepool_limits limits = { .quota = LARGE, .spill = "/mnt" };
	tidepool_pool *one = tidepool_open("kept", TIDEPOOL_KEPT, &limits);
	tidepool_pool *two = tidepool_open("kept", TIDEPOOL_KEPT, &limits);
	char buffer[10];

	CHECK(one && two);
	CHECK(tidepool_put(one, "k", 1, "v", 1) == 0);
	CHECK(tidepool_get(two, "k", 1, buffer, sizeof(buffer)) == 1 && *buffer == 'v');
	CHECK(!tidepool_open("kept", TIDEPOOL_EPHEMERAL, NULL) && errno == EEXIST);
	CHECK(tidepool_unlink(two) == 0);
	tidepool_close(one);
	tidepool_close(two);
	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, NULL) && errno == EINVAL);
	CHECK(!tidepool_open(NULL, TIDEPOOL_EPHEMERAL, &limits) && errno == EINVAL);
	limits.spill = "/tmp";
	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, &limits) && errno == EOPNOTSUPP);
	limits.spill = "/none";
	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, &limits) && errno == ENOENT);
	limits = (struct tidepool_limits) { .spill = "/mnt" };
	CHECK(!tidepool_open(NULL, TIDEPOOL_KEPT, &limits) && errno == EINVAL);
	check_too_large();
}

/* Nobody lends: what is put is refused, and says so; what is kept needs nobody. */
static void check_refused(tidepool_pool *pool)
{
	check_kept();
	CHECK(tidepool_put(pool, "k", 1, "v", 1) == -1 && errno == ENOTCONN);
	printf("%s\n", tidepool_strerror(ENOTCONN));
}

/* What is put is not read by who put it. */
static void check_posts(void)
{
	tidepool_pool *pool = tidepool_open("posted", TIDEPOOL_EPHEMERAL, NULL);
	struct tidepool_stats stats;
	char buffer[10];
	int shown = 0;

	CHECK(pool != NULL);
	CHECK(tidepool_put(pool, "k", 1, "v", 1) == 0);
	CHECK(tidepool_put(pool, "gone", 4, "v", 1) == 0);
	CHECK(tidepool_delete(pool, "gone", 4) == 0);
	CHECK(tidepool_get(pool, "k", 1, buffer, sizeof(buffer)) == -1 && errno == EBADF);
	CHECK(tidepool_size(pool, "k", 1) == -1 && errno == EBADF);
	CHECK(tidepool_each(pool, stop, &shown) == -1 && errno == EBADF && !shown);
	CHECK(tidepool_stats(pool, &stats) == -1 && errno == EBADF);
	tidepool_close(pool);
	printf("%s\n", tidepool_strerror(EBADF));
}

int main(int argc, char **argv)
{
	tidepool_pool *pool = open_own(0);

	if (argc > 1 && !strcmp(argv[1], "refused")) {
		check_refused(pool);
	} else if (argc > 1 && !strcmp(argv[1], "posts")) {
		check_posts();
	} else {
		check_values(pool);
		check_large(pool);
		check_time(pool);
		check_many(pool);
		check_shared();
		check_kept();
		check_bad(pool);
	}
	tidepool_close(pool);
	return !!failures;
}
