// SPDX-License-Identifier: GPL-2.0
/* Plain reads and writes of whole files: fill, random, sequential, many. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stress.h"

#define CHUNK 64L	/* pages written or read at once */

static long file_pages(int fd)
{
	struct stat stat;

	if (fstat(fd, &stat))
		die("stat");
	return stat.st_size / PAGE;
}

static void write_pages(int fd, uint32_t file, long count, uint32_t version)
{
	struct page *chunk = pages_alloc(CHUNK);

	for (long index = 0; index < count; index += CHUNK) {
		long pages = count - index < CHUNK ? count - index : CHUNK;

		for (long i = 0; i < pages; i++)
			page_make(&chunk[i], file, index + i, version);
		if (write(fd, chunk, pages * PAGE) != pages * PAGE)
			die("write");
	}
	free(chunk);
}

/* All pages in one request, which the kernel goes on with after the call that submits it. */
static void write_at_once(struct uring *ring, int fd, uint32_t file, long count, uint32_t version)
{
	struct page *pages = pages_alloc(count);

	for (long i = 0; i < count; i++)
		page_make(&pages[i], file, i, version);
	uring_add(ring, true, fd, pages, count * PAGE, 0);
	if (!uring_run(ring, 1))
		die("io_uring");
	free(pages);
}

/* stress fill FILE mib=N [version=1]: writes the file anew. */
int mode_fill(const char *path)
{
	int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);

	write_pages(fd, file_id(path), option("mib", 64) * PAGES_PER_MIB, option("version", 1));
	if (fsync(fd) || close(fd))
		die(path);
	return 0;
}

/* stress overwrite FILE [version=2]: the whole file in one direct write. */
int mode_overwrite(const char *path)
{
	int fd = open_or_die(path, O_WRONLY | O_DIRECT);
	long count = file_pages(fd);
	struct page *pages = pages_alloc(count);
	uint32_t version = option("version", 2);

	for (long i = 0; i < count; i++)
		page_make(&pages[i], file_id(path), i, version);
	if (pwrite(fd, pages, count * PAGE, 0) != count * PAGE || close(fd))
		die(path);
	free(pages);
	return 0;
}

/* ---- random ---- */

static struct {
	int fd;
	uint32_t file;
	long pages, reads, limit;
	double until;
	struct latency latency;
} rnd;

static bool random_more(void)
{
	long done = __sync_fetch_and_add(&rnd.reads, 1);

	if (done < rnd.limit && !time_is_up(rnd.until))
		return true;
	__sync_fetch_and_sub(&rnd.reads, 1);
	return false;
}

static void *random_thread(void *number)
{
	uint64_t state = random_seed((long)number);
	uint32_t version = option("version", 1);
	bool verify = option("verify", 1);
	struct page *page = pages_alloc(1);

	while (random_more()) {
		long index = random_next(&state) % rnd.pages;
		double start = now();
		bool read = pread(rnd.fd, page, PAGE, index * PAGE) == PAGE;

		latency_add(&rnd.latency, now() - start);
		if (!read)
			io_failed("pread");
		else if (verify)
			page_check(page, rnd.file, index, version, "random read");
	}
	free(page);
	return NULL;
}

/*
 * stress random FILE [reads=N] [seconds=N] [threads=1] [seed=N] [version=1]
 * [verify=1] [direct=0] [ahead=0]: reads single pages, without read-ahead unless
 * asked to.
 */
int mode_random(const char *path)
{
	double start = now(), seconds;

	rnd.fd = open_or_die(path, O_RDONLY | (option("direct", 0) ? O_DIRECT : 0));
	rnd.file = file_id(path);
	rnd.pages = file_pages(rnd.fd);
	rnd.limit = option("reads", option_text("seconds", NULL) ? 1L << 40 : 1000);
	rnd.until = start + option("seconds", 1L << 30);
	if (!option("ahead", 0))
		posix_fadvise(rnd.fd, 0, 0, POSIX_FADV_RANDOM);
	run_threads(option("threads", 1), random_thread);
	seconds = now() - start;
	printf("{\"mode\": \"random\", \"reads\": %ld, \"seconds\": %.3f, \"iops\": %.1f, ",
	       rnd.reads, seconds, rnd.reads / seconds);
	latency_print(&rnd.latency);
	printf(", \"wrong_pages\": %lu, \"errors\": %lu}\n", wrong_pages(), io_errors());
	return verdict();
}

/* ---- sequential ---- */

/* How long the longest read took, in seconds. */
static double read_sequentially(int fd, uint32_t file, uint32_t version, long pages)
{
	struct page *chunk = pages_alloc(CHUNK);
	double longest = 0;

	for (long index = 0; index < pages; index += CHUNK) {
		long count = pages - index < CHUNK ? pages - index : CHUNK;
		double start = now();
		bool read = pread(fd, chunk, count * PAGE, index * PAGE) == count * PAGE;

		longest = fmax(longest, now() - start);
		if (!read) {
			io_failed("pread");
			continue;
		}
		for (long i = 0; i < count; i++)
			page_check(&chunk[i], file, index + i, version, "sequential read");
	}
	free(chunk);
	return longest;
}

/* stress sequential FILE [passes=1] [version=1] [direct=0]: reads and verifies the whole file. */
int mode_sequential(const char *path)
{
	int fd = open_or_die(path, O_RDONLY | (option("direct", 0) ? O_DIRECT : 0));
	long pages = file_pages(fd), passes = option("passes", 1);
	double start = now(), longest = 0, seconds;

	for (long pass = 0; pass < passes; pass++)
		longest = fmax(longest, read_sequentially(fd, file_id(path), option("version", 1), pages));
	seconds = now() - start;
	printf("{\"mode\": \"sequential\", \"pages\": %ld, \"seconds\": %.3f, \"mib_per_second\": %.1f, "
	       "\"max_us\": %.1f, \"wrong_pages\": %lu, \"errors\": %lu}\n", pages * passes, seconds,
	       pages * passes / (double)PAGES_PER_MIB / seconds, longest * 1e6, wrong_pages(), io_errors());
	return verdict();
}

/* ---- many ---- */

static struct {
	const char *folder;
	long files, done;
	double until;
} many;

/* One to `pages` pages, by number, so that writer and readers agree. */
static long many_pages(long number)
{
	return 1 + number * 7 % option("pages", 8);
}

static void many_path(char *path, size_t size, const char *folder, long number)
{
	snprintf(path, size, "%s/%ld/%ld", folder, number / 1000, number);
}

static void many_write(uint32_t version)
{
	long direct = option("direct", 0);
	struct uring *ring = direct > 1 ? uring_new() : NULL;
	char path[256];

	if (mkdir(many.folder, 0755) && errno != EEXIST)
		die(many.folder);
	for (; many.done < many.files; many.done++) {
		if (many.done % 1000 == 0) {
			snprintf(path, sizeof(path), "%s/%ld", many.folder, many.done / 1000);
			if (mkdir(path, 0755) && errno != EEXIST)
				die(path);
		}
		many_path(path, sizeof(path), many.folder, many.done);
		int fd = open_or_die(path, O_WRONLY | O_CREAT | (direct ? O_DIRECT : O_TRUNC));

		if (ring)
			write_at_once(ring, fd, file_id(path), many_pages(many.done), version);
		else
			write_pages(fd, file_id(path), many_pages(many.done), version);
		close(fd);
	}
	sync();
}

static void many_read_one(long number, uint32_t version)
{
	char path[256];

	many_path(path, sizeof(path), many.folder, number);
	int fd = open_or_die(path, O_RDONLY);

	read_sequentially(fd, file_id(path), version, many_pages(number));
	close(fd);
}

static void many_read(uint32_t version)
{
	for (; many.done < many.files; many.done++)
		many_read_one(many.done, version);
}

static void *many_thread(void *number)
{
	uint64_t state = random_seed((long)number);
	uint32_t version = option("version", 1);

	while (!time_is_up(many.until)) {
		many_read_one(random_next(&state) % many.files, version);
		__sync_fetch_and_add(&many.done, 1);
	}
	return NULL;
}

/*
 * stress many FOLDER [files=2000] [pages=8] [write=0] [direct=0] [version=1]
 * [seconds=N] [threads=1] [seed=N]: small files, written, or each read and verified,
 * or, with `seconds`, for so long any of them. With direct=1 they are written past the
 * page cache, with direct=2 by io_uring as well.
 */
int mode_many(const char *folder)
{
	uint32_t version = option("version", 1);
	long seconds = option("seconds", 0);
	double start = now();

	many.folder = folder;
	many.files = option("files", 2000);
	many.until = start + seconds;
	if (option("write", 0))
		many_write(version);
	else if (seconds)
		run_threads(option("threads", 1), many_thread);
	else
		many_read(version);
	printf("{\"mode\": \"many\", \"files\": %ld, \"seconds\": %.3f, \"wrong_pages\": %lu, \"errors\": %lu}\n",
	       many.done, now() - start, wrong_pages(), io_errors());
	return verdict();
}
