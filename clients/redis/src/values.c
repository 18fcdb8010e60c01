// SPDX-License-Identifier: Apache-2.0
/*
 * The pool of ordinary values. It has no name, so no other program opens it, and TIDE.GET
 * reads from another one; it goes with the server. A number stands for one value only,
 * ever: what comes by a number is what was put by it, or nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <tidepool.h>

#include "jobs.h"
#include "values.h"

#define TRIES		3	/* of what memory was too short for */
#define WAIT_US		1000
#define FIRST_ROOM	1024	/* numbers to be dropped */

static tidepool_pool *pool;
static atomic_uint_fast64_t last_number;
static char *buffer;		/* of the server's main thread, and of a child's only one */
static size_t buffer_size;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct burial *dropped;	/* those that nobody needs, unless a child does */

/**
 * struct burial - numbers to be dropped
 * @job: which does it
 * @room: for so many
 * @count: there are so many
 */
struct burial {
	struct job job;
	size_t room;
	size_t count;
	uint64_t number[];
};

/**
 * values_open() - make the pool
 * @quota: bytes that it may hold; 0: what the administrator allows
 *
 * Return: 0, or an errno of libtidepool's; EBADF if the server may not read what it puts.
 */
int values_open(uint64_t quota)
{
	struct tidepool_limits limits = { .quota = quota };
	struct tidepool_stats stats;
	int error;

	pool = tidepool_open(NULL, TIDEPOOL_EPHEMERAL, &limits);
	if (pool && !tidepool_stats(pool, &stats))	/* who may only put would get nothing back */
		return 0;
	error = errno;
	values_close();
	return error;
}

/**
 * values_close() - let all values go
 */
void values_close(void)
{
	tidepool_close(pool);
	pool = NULL;
}

/**
 * values_number() - a number that no value has had
 */
uint64_t values_number(void)
{
	return ++last_number;
}

/**
 * values_put() - keep a value, in any thread
 * @number: of values_number()
 * @value: its bytes
 * @size: how many
 *
 * Return: 0, or an errno of tidepool_put()'s.
 */
int values_put(uint64_t number, const char *value, size_t size)
{
	int failed;

	do
		failed = tidepool_put(pool, &number, sizeof(number), value, size);
	while (failed && errno == EINTR);
	return failed ? errno : 0;
}

static int make_room(size_t size)
{
	char *more;

	if (size <= buffer_size)
		return 0;
	more = realloc(buffer, size);
	if (!more)
		return ENOMEM;
	buffer = more;
	buffer_size = size;
	return 0;
}

/* Lenders have not lost it, as far as is known, and have not brought it in time. */
static int is_late(uint64_t number)
{
	return errno == ENOENT && tidepool_size(pool, &number, sizeof(number)) >= 0;
}

/**
 * values_get() - what was put, in the server's main thread or in a child
 * @number: of the value
 * @size: its bytes
 *
 * Return: the value, until the next call; or NULL. errno: ENOENT: it is gone; EAGAIN: it is late, or memory is too
 * short for it; ENOMEM: likewise.
 */
const char *values_get(uint64_t number, size_t size)
{
	int tries = TRIES;
	ssize_t got;

	errno = make_room(size ? size : 1);
	if (errno)
		return NULL;
	do {
		got = tidepool_get(pool, &number, sizeof(number), buffer, size);
		if (got < 0 && errno == EAGAIN && --tries)
			usleep(WAIT_US);
	} while (got < 0 && (errno == EINTR || (errno == EAGAIN && tries)));
	if (got >= 0 && (size_t)got == size)
		return buffer;
	if (got >= 0)
		errno = ENOENT;
	else if (is_late(number))
		errno = EAGAIN;
	return NULL;
}

static int grow(void)
{
	size_t room = dropped ? 2 * dropped->room : FIRST_ROOM;
	struct burial *more = realloc(dropped, sizeof(*more) + room * sizeof(more->number[0]));

	if (!more)
		return 0;
	more->count = dropped ? more->count : 0;
	more->room = room;
	dropped = more;
	return 1;
}

/**
 * values_drop() - nobody needs a value any more; in any thread
 * @number: of the value
 *
 * A child that writes a snapshot may need it: it goes with values_drop_now(). Without memory
 * to note it, it stays until the server ends.
 */
void values_drop(uint64_t number)
{
	pthread_mutex_lock(&mutex);
	if ((dropped && dropped->count < dropped->room) || grow())
		dropped->number[dropped->count++] = number;
	pthread_mutex_unlock(&mutex);
}

static void bury(struct job *job)
{
	struct burial *burial = (struct burial *)job;

	for (size_t i = 0; i < burial->count; i++)
		tidepool_delete(pool, &burial->number[i], sizeof(burial->number[i]));
	free(burial);
}

/**
 * values_drop_now() - no child is there: what was dropped goes, in a thread
 */
void values_drop_now(void)
{
	struct burial *burial;

	pthread_mutex_lock(&mutex);
	burial = dropped;
	dropped = NULL;
	pthread_mutex_unlock(&mutex);
	if (!burial)
		return;
	burial->job = (struct job) { .run = bury };
	jobs_add(&burial->job);
}
