// SPDX-License-Identifier: GPL-2.0
/*
 * A device whose writer notes what was acknowledged, for who cuts the power: what the
 * disk then has of a block is never older than what the notes on the same disk say.
 *
 * Each thread has blocks of its own, and a page of notes: the version of each of its
 * blocks that was acknowledged. It writes that page after the acknowledgement.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "stress.h"

#define THREADS		4L
#define BLOCKS		512L		/* of a thread */
#define RUN		8L		/* blocks that are written in one */
#define WRITES		12		/* between two notes, at most */

struct notes {
	uint32_t version[PAGE / sizeof(uint32_t)];
};

/*
 * One flush at a time. Two are in flight otherwise, and may end in any order: dm-log-writes notes a write with the flush
 * that was begun first after it, also if one that was begun later has ended and been noted down.
 */
static pthread_mutex_t flushing = PTHREAD_MUTEX_INITIALIZER;

static int device, disk;
static double until;
static bool at_flush;
static uint32_t id;

static long block_at(long thread, long block)
{
	return (thread * BLOCKS + block) * PAGE;
}

/* ---- the writer ---- */

/* Writes all of it; the disk has it when this returns, and what was written before. */
static void write_durably(int to, const void *from, long bytes, long at, const char *what)
{
	pthread_mutex_lock(&flushing);
	if (pwritev2(to, &(struct iovec){ (void *)from, bytes }, 1, at, RWF_DSYNC) != bytes)
		io_failed(what);
	pthread_mutex_unlock(&flushing);
}

static void flush(void)
{
	pthread_mutex_lock(&flushing);
	sync_file(device);
	pthread_mutex_unlock(&flushing);
}

/*
 * Some neighbours; returns whether the disk must have them by now. Those that are durable by
 * themselves are in the first half, all others in the second: what dm-log-writes notes of a
 * write that waits for a flush comes after a later one of the same block that does not.
 */
static bool write_run(long thread, uint64_t *state, struct page *pages, struct notes *begun, long *first, long *count)
{
	bool durable = at_flush && !(random_next(state) % 4);

	*count = 1 + random_next(state) % RUN;
	*first = random_next(state) % (BLOCKS / 2 - *count + 1) + (durable ? 0 : BLOCKS / 2);
	for (long i = 0; i < *count; i++)
		page_make(&pages[i], id, thread * BLOCKS + *first + i, ++begun->version[*first + i]);
	if (durable)
		write_durably(device, pages, *count * PAGE, block_at(thread, *first), "write");
	else if (pwrite(device, pages, *count * PAGE, block_at(thread, *first)) != *count * PAGE)
		io_failed("write");
	return durable || !at_flush;
}

static void read_back(long thread, uint64_t *state, struct page *page, const struct notes *begun)
{
	long block = random_next(state) % BLOCKS;

	if (pread(device, page, PAGE, block_at(thread, block)) != PAGE)
		io_failed("read");
	else if (begun->version[block])
		page_check(page, id, thread * BLOCKS + block, begun->version[block], "read back");
}

static void *work(void *number)
{
	struct notes *notes = (struct notes *)pages_alloc(1), begun = { { 0 } };
	struct page *pages = pages_alloc(RUN);
	long thread = (long)number, first, count;
	uint64_t state = random_seed(thread);

	memset(notes, 0, PAGE);
	while (!time_is_up(until)) {
		for (long left = random_next(&state) % WRITES; left >= 0; left--) {
			if (write_run(thread, &state, pages, &begun, &first, &count))
				memcpy(&notes->version[first], &begun.version[first],
				       count * sizeof(uint32_t));
			read_back(thread, &state, pages, &begun);
		}
		if (at_flush && random_next(&state) % 2) {
			flush();
			memcpy(notes, &begun, PAGE);
		}
		write_durably(disk, notes, PAGE, thread * PAGE, "note");
	}
	return NULL;
}

/*
 * stress durable DEVICE notes=DISK [at=flush|write] [seconds=10]: its first 8 MiB, which hold zeros; DISK, four pages
 * of zeros, is where no cache of the device's is. A write is acknowledged when it is over, or by a flush, or, if it asks
 * for that, by itself.
 */
int mode_durable(const char *path)
{
	device = open_or_die(path, O_RDWR | O_DIRECT);
	disk = open_or_die(option_text("notes", ""), O_RDWR | O_DIRECT);
	at_flush = !strcmp(option_text("at", "flush"), "flush");
	id = file_id("durable");
	until = now() + option("seconds", 10);
	run_threads(THREADS, work);
	printf("{\"mode\": \"durable\", \"bytes_verified\": %lu, \"wrong_pages\": %lu, \"errors\": %lu}\n",
	       bytes_verified(), wrong_pages(), io_errors());
	return verdict();
}

/* ---- the disk after the power was cut ---- */

static unsigned long acknowledged;

static void endured(const struct page *page, long index, uint32_t least)
{
	uint32_t version = page_version(page);

	acknowledged += least;
	if (version < least || !page_is(page, id, index, version))
		page_wrong(page, id, index, least, "older than acknowledged, or torn");
}

/* stress endured IMAGE notes=BYTE: what a disk has; the device began at its first byte, and the notes begin there. */
int mode_endured(const char *path)
{
	struct page *page = pages_alloc(1);
	struct notes *notes = (struct notes *)pages_alloc(1);
	int image = open_or_die(path, O_RDONLY);

	id = file_id("durable");
	for (long thread = 0; thread < THREADS; thread++) {
		if (pread(image, notes, PAGE, option("notes", 0) + thread * PAGE) != PAGE)
			io_failed("notes");
		for (long block = 0; block < BLOCKS; block++) {
			if (pread(image, page, PAGE, block_at(thread, block)) != PAGE)
				io_failed("read");
			endured(page, thread * BLOCKS + block, notes->version[block]);
		}
	}
	printf("{\"mode\": \"endured\", \"acknowledged\": %lu, \"wrong_pages\": %lu, \"errors\": %lu}\n",
	       acknowledged, wrong_pages(), io_errors());
	return verdict();
}
