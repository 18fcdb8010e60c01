// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once: threads that read and change random pages of a few files in
 * every way there is, and know for each page what it must contain.
 *
 * Locks, in this order: a file's `shape` (read for all that leaves pages where
 * they are, write for truncation, collapsing and inserting), then its `dirt` (read
 * for what makes pages dirty, write for direct writes), then its pages' own, lowest
 * index first (read to read, write to change). The noise threads take no lock and
 * verify nothing: they make the kernel read ahead and evict in the midst of all the
 * rest.
 *
 * `dirt` is there because no kernel can drop the page that a direct write has
 * overwritten once another one of the same large folio is dirty: that page is then
 * wrong, with or without Tidepool.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "stress.h"

#define MAX_FILES	8
#define MAX_RANGE	16L	/* pages changed or read at once */
#define CHURN_PAGES	32L
#define NOISE_THREADS	2

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE	0x80	/* since 6.14 */
#endif

/* What a page must contain: its version, and the index where it was written (ranges can be moved). */
struct shadow {
	uint32_t version, index;
};

struct file {
	char path[256];
	uint32_t id;
	int fd, direct;
	long pages;
	struct page *map;
	struct shadow *shadow;
	pthread_rwlock_t *lock;		/* one to a page */
	pthread_rwlock_t shape, dirt;
};

struct worker {
	uint64_t state;
	struct page *buffer;		/* MAX_RANGE pages */
	int pipe[2];
	struct uring *ring;
};

static struct file files[MAX_FILES];
static long file_count;
static double until;
static uint32_t last_version;
static unsigned long churned, noise_reads;
static struct latency read_latency;

static uint64_t draw(struct worker *worker, uint64_t below)
{
	return random_next(&worker->state) % below;
}

/* ---- pages ---- */

static bool check(struct file *file, const struct page *page, long index, const char *how)
{
	return page_check(page, file->id, file->shadow[index].index, file->shadow[index].version, how);
}

static void check_range(struct file *file, const struct page *pages, long index, long count, const char *how)
{
	for (long i = 0; i < count; i++)
		check(file, &pages[i], index + i, how);
}

static void set_zero(struct file *file, long index, long count)
{
	for (long i = 0; i < count; i++)
		file->shadow[index + i].version = 0;
}

/* New contents for a range: made in the worker's buffer and noted; to be written by the caller. */
static struct page *renew(struct worker *worker, struct file *file, long index, long count)
{
	for (long i = 0; i < count; i++) {
		struct shadow *shadow = &file->shadow[index + i];

		shadow->version = __sync_add_and_fetch(&last_version, 1);
		shadow->index = index + i;
		page_make(&worker->buffer[i], file->id, shadow->index, shadow->version);
	}
	return worker->buffer;
}

static void write_at(int fd, const void *data, long length, long offset, const char *how)
{
	if (pwrite(fd, data, length, offset) != length)
		io_failed(how);
}

/* ---- reading: the page's lock is held for reading ---- */

static void op_read(struct worker *w, struct file *file, long index, long count)
{
	double start = now();

	if (pread(file->fd, w->buffer, count * PAGE, index * PAGE) != count * PAGE)
		io_failed("read");
	else
		check_range(file, w->buffer, index, count, "read");
	latency_add(&read_latency, now() - start);
}

static void op_read_mapped(struct worker *w, struct file *file, long index, long count)
{
	memcpy(w->buffer, &file->map[index], count * PAGE);
	check_range(file, w->buffer, index, count, "mapped read");
}

static void op_read_direct(struct worker *w, struct file *file, long index, long count)
{
	if (pread(file->direct, w->buffer, count * PAGE, index * PAGE) != count * PAGE)
		io_failed("direct read");
	else
		check_range(file, w->buffer, index, count, "direct read");
}

/* Never blocks in the kernel, so it may return nothing or a part. */
static void op_read_nowait(struct worker *w, struct file *file, long index, long count)
{
	struct iovec vector = { w->buffer, count * PAGE };
	ssize_t n = preadv2(file->fd, &vector, 1, index * PAGE, RWF_NOWAIT);

	if (n < 0 && errno != EAGAIN)
		io_failed("nowait read");
	else if (n > 0)
		check_range(file, w->buffer, index, n / PAGE, "nowait read");
}

/* The pages are to leave the cache at once; kernels that do not know the flag say so. */
static void op_read_dont_cache(struct worker *w, struct file *file, long index, long count)
{
	struct iovec vector = { w->buffer, count * PAGE };
	ssize_t n = preadv2(file->fd, &vector, 1, index * PAGE, RWF_DONTCACHE);

	if (n < 0 && errno == EOPNOTSUPP)
		return;
	if (n != count * PAGE)
		io_failed("uncached read");
	else
		check_range(file, w->buffer, index, count, "uncached read");
}

/* A page a request, all at once, through the cache and around it by turns. */
static void op_read_async(struct worker *w, struct file *file, long index, long count)
{
	for (long i = 0; i < count; i++)
		uring_add(w->ring, false, i % 2 ? file->direct : file->fd, &w->buffer[i], PAGE, (index + i) * PAGE);
	if (uring_run(w->ring, count))
		check_range(file, w->buffer, index, count, "asynchronous read");
	else
		io_failed("asynchronous read");
}

static void op_read_splice(struct worker *w, struct file *file, long index, long count)
{
	off_t offset = index * PAGE;

	for (long i = 0; i < count; i++) {
		long got = 0;

		while (got < PAGE) {
			ssize_t n = splice(file->fd, &offset, w->pipe[1], NULL, PAGE - got, 0);

			if (n <= 0 || read(w->pipe[0], (char *)w->buffer + got, n) != n) {
				io_failed("splice");
				return;
			}
			got += n;
		}
		check(file, w->buffer, index + i, "splice");
	}
}

/* ---- changing: the pages' locks are held for writing ---- */

static void op_write(struct worker *w, struct file *file, long index, long count)
{
	write_at(file->fd, renew(w, file, index, count), count * PAGE, index * PAGE, "write");
}

static void op_write_parts(struct worker *w, struct file *file, long index, long count)
{
	const char *data = (char *)renew(w, file, index, count);
	long length = count * PAGE, split = 1 + draw(w, length - 1);

	write_at(file->fd, data, split, index * PAGE, "partial write");
	write_at(file->fd, data + split, length - split, index * PAGE + split, "partial write");
}

static void op_write_mapped(struct worker *w, struct file *file, long index, long count)
{
	memcpy(&file->map[index], renew(w, file, index, count), count * PAGE);
}

static void op_write_direct(struct worker *w, struct file *file, long index, long count)
{
	write_at(file->direct, renew(w, file, index, count), count * PAGE, index * PAGE, "direct write");
}

/* In two sector-aligned parts, so that the first shares its page with old contents. */
static void op_write_direct_parts(struct worker *w, struct file *file, long index, long count)
{
	const char *data = (char *)renew(w, file, index, count);
	long length = count * PAGE, split = 512 * (1 + draw(w, length / 512 - 1));

	write_at(file->direct, data, split, index * PAGE, "partial direct write");
	write_at(file->direct, data + split, length - split, index * PAGE + split, "partial direct write");
}

/* Direct writes that are in progress after their calls have returned. */
static void op_write_async(struct worker *w, struct file *file, long index, long count)
{
	struct page *pages = renew(w, file, index, count);

	for (long i = 0; i < count; i++)
		uring_add(w->ring, true, file->direct, &pages[i], PAGE, (index + i) * PAGE);
	if (!uring_run(w->ring, count))
		io_failed("asynchronous direct write");
}

static void op_punch(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, index * PAGE, count * PAGE))
		io_failed("punch");
	set_zero(file, index, count);
}

static void op_zero_range(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	if (fallocate(file->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, index * PAGE, count * PAGE))
		io_failed("zero range");
	set_zero(file, index, count);
}

static bool all_zero(const char *data, long length)
{
	for (long i = 0; i < length; i++)
		if (data[i])
			return false;
	return true;
}

/* The end of a page becomes zeros; the page is verified as it then is, and renewed. */
static void op_punch_part(struct worker *w, struct file *file, long index, long count)
{
	struct shadow old = file->shadow[index];
	struct page *found = &w->buffer[0], *expected = &w->buffer[1];
	long keep = 1 + draw(w, PAGE - 1);

	(void)count;
	if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, index * PAGE + keep, PAGE - keep))
		io_failed("partial punch");
	if (pread(file->fd, found, PAGE, index * PAGE) != PAGE)
		io_failed("read after partial punch");
	page_make(expected, file->id, old.index, old.version);
	if (memcmp(found, expected, keep) || !all_zero((char *)found + keep, PAGE - keep))
		page_wrong(found, file->id, old.index, old.version, "read after partial punch");
	op_write(w, file, index, 1);
}

/* ---- moving pages: the file's shape is held for writing ---- */

/* To a size in the midst of a page and back: the rest of that page must then be zeros. */
static void op_truncate(struct worker *w, struct file *file, long index, long count)
{
	long from = file->pages - 1 - draw(w, file->pages / 20 + 1);
	struct shadow old = file->shadow[from];
	struct page *found = &w->buffer[0], *expected = &w->buffer[1];
	long keep = draw(w, PAGE);

	(void)index;
	(void)count;
	if (ftruncate(file->fd, from * PAGE + keep) || ftruncate(file->fd, file->pages * PAGE))
		io_failed("truncate");
	if (pread(file->fd, found, PAGE, from * PAGE) != PAGE)
		io_failed("read after truncation");
	page_make(expected, file->id, old.index, old.version);
	if (memcmp(found, expected, keep) || !all_zero((char *)found + keep, PAGE - keep))
		page_wrong(found, file->id, old.index, old.version, "read after truncation");
	set_zero(file, from, file->pages - from);
	op_write(w, file, from, 1);
}

static void op_collapse(struct worker *w, struct file *file, long index, long count)
{
	struct shadow *shadow = file->shadow;

	(void)w;
	if (index + count >= file->pages)
		return;
	if (fallocate(file->fd, FALLOC_FL_COLLAPSE_RANGE, index * PAGE, count * PAGE)) {
		if (errno != EOPNOTSUPP)	/* btrfs cannot */
			io_failed("collapse");
		return;
	}
	if (ftruncate(file->fd, file->pages * PAGE))
		io_failed("truncate after collapse");
	memmove(&shadow[index], &shadow[index + count], (file->pages - index - count) * sizeof(*shadow));
	set_zero(file, file->pages - count, count);
}

static void op_insert(struct worker *w, struct file *file, long index, long count)
{
	struct shadow *shadow = file->shadow;

	(void)w;
	if (fallocate(file->fd, FALLOC_FL_INSERT_RANGE, index * PAGE, count * PAGE)) {
		if (errno != EOPNOTSUPP)	/* btrfs cannot */
			io_failed("insert");
		return;
	}
	if (ftruncate(file->fd, file->pages * PAGE))
		io_failed("truncate after insert");
	memmove(&shadow[index + count], &shadow[index], (file->pages - index - count) * sizeof(*shadow));
	set_zero(file, index, count);
}

/* Shared extents, where the file system has them: the copy's old pages must be gone. */
static void op_clone(struct worker *w, struct file *file, long index, long count)
{
	long to = draw(w, file->pages - count + 1);
	struct file_clone_range range = {
		.src_fd = file->fd, .src_offset = index * PAGE, .src_length = count * PAGE, .dest_offset = to * PAGE,
	};

	if (labs(to - index) < count)
		return;
	if (ioctl(file->fd, FICLONERANGE, &range)) {
		if (errno != EOPNOTSUPP && errno != ENOTTY)
			io_failed("clone");
		return;
	}
	memcpy(&file->shadow[to], &file->shadow[index], count * sizeof(*file->shadow));
	if (pread(file->fd, w->buffer, count * PAGE, to * PAGE) != count * PAGE)
		io_failed("read after clone");
	else
		check_range(file, w->buffer, to, count, "read after clone");
}

/* ---- hints: contents stay as they are ---- */

static void op_dont_need(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	posix_fadvise(file->fd, index * PAGE, count * 4 * PAGE, POSIX_FADV_DONTNEED);
}

static void op_ahead(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	posix_fadvise(file->fd, index * PAGE, count * 4 * PAGE, POSIX_FADV_WILLNEED);
}

static void op_page_out(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	madvise(&file->map[index], count * PAGE, MADV_PAGEOUT);	/* older kernels may refuse: it is a hint */
}

static void op_sync_range(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	if (sync_file_range(file->fd, index * PAGE, count * 16 * PAGE, SYNC_FILE_RANGE_WRITE))
		io_failed("sync_file_range");
}

static void op_fsync(struct worker *w, struct file *file, long index, long count)
{
	(void)w;
	(void)index;
	(void)count;
	sync_file(file->fd);
}

/* ---- which operation, how often, under which lock ---- */

enum needs { READS, CHANGES, CHANGES_DIRECTLY, MOVES, HINTS };

static struct operation {
	const char *name;
	enum needs needs;
	int weight;		/* of a thousand */
	long pages;		/* at most */
	void (*run)(struct worker *worker, struct file *file, long index, long count);
	unsigned long done;
} operations[] = {
	{ "read", READS, 330, 1, op_read, 0 },
	{ "read_several", READS, 60, MAX_RANGE, op_read, 0 },
	{ "read_mapped", READS, 90, 4, op_read_mapped, 0 },
	{ "read_direct", READS, 35, 4, op_read_direct, 0 },
	{ "read_nowait", READS, 40, 4, op_read_nowait, 0 },
	{ "read_dont_cache", READS, 20, 4, op_read_dont_cache, 0 },
	{ "read_async", READS, 20, MAX_RANGE, op_read_async, 0 },
	{ "read_splice", READS, 25, 2, op_read_splice, 0 },
	{ "write", CHANGES, 80, 4, op_write, 0 },
	{ "write_parts", CHANGES, 60, 2, op_write_parts, 0 },
	{ "write_mapped", CHANGES, 70, 2, op_write_mapped, 0 },
	{ "write_direct", CHANGES_DIRECTLY, 60, 4, op_write_direct, 0 },
	{ "write_direct_parts", CHANGES_DIRECTLY, 20, 2, op_write_direct_parts, 0 },
	{ "write_async", CHANGES_DIRECTLY, 30, MAX_RANGE, op_write_async, 0 },
	{ "punch", CHANGES, 20, MAX_RANGE, op_punch, 0 },
	{ "zero_range", CHANGES, 10, MAX_RANGE, op_zero_range, 0 },
	{ "punch_part", CHANGES, 15, 1, op_punch_part, 0 },
	{ "truncate", MOVES, 4, 1, op_truncate, 0 },
	{ "collapse", MOVES, 1, MAX_RANGE, op_collapse, 0 },
	{ "insert", MOVES, 1, MAX_RANGE, op_insert, 0 },
	{ "clone", MOVES, 2, MAX_RANGE, op_clone, 0 },
	{ "dont_need", HINTS, 45, MAX_RANGE, op_dont_need, 0 },
	{ "ahead", HINTS, 12, MAX_RANGE, op_ahead, 0 },
	{ "page_out", HINTS, 10, MAX_RANGE, op_page_out, 0 },
	{ "sync_range", HINTS, 10, MAX_RANGE, op_sync_range, 0 },
	{ "fsync", HINTS, 2, 1, op_fsync, 0 },
};

#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static struct operation *draw_operation(struct worker *worker)
{
	int sum = 0, drawn;

	for (size_t i = 0; i < OPERATIONS; i++)
		sum += operations[i].weight;
	drawn = draw(worker, sum);
	for (size_t i = 0; i < OPERATIONS; i++) {
		drawn -= operations[i].weight;
		if (drawn < 0)
			return &operations[i];
	}
	return &operations[0];
}

static void lock_pages(struct file *file, long index, long count, enum needs needs)
{
	for (long i = index; i < index + count; i++) {
		if (needs == READS)
			pthread_rwlock_rdlock(&file->lock[i]);
		else
			pthread_rwlock_wrlock(&file->lock[i]);
	}
}

static void unlock_pages(struct file *file, long index, long count)
{
	for (long i = index; i < index + count; i++)
		pthread_rwlock_unlock(&file->lock[i]);
}

static void lock_dirt(struct file *file, enum needs needs)
{
	if (needs == CHANGES)
		pthread_rwlock_rdlock(&file->dirt);
	else if (needs == CHANGES_DIRECTLY)
		pthread_rwlock_wrlock(&file->dirt);
}

static void unlock_dirt(struct file *file, enum needs needs)
{
	if (needs == CHANGES || needs == CHANGES_DIRECTLY)
		pthread_rwlock_unlock(&file->dirt);
}

static void do_operation(struct worker *worker, struct operation *operation)
{
	struct file *file = &files[draw(worker, file_count)];
	long count = 1 + draw(worker, operation->pages);
	long index = draw(worker, file->pages - count + 1);
	bool pages = operation->needs != MOVES && operation->needs != HINTS;

	if (operation->needs == MOVES)
		pthread_rwlock_wrlock(&file->shape);
	else
		pthread_rwlock_rdlock(&file->shape);
	lock_dirt(file, operation->needs);
	if (pages)
		lock_pages(file, index, count, operation->needs);
	operation->run(worker, file, index, count);
	if (pages)
		unlock_pages(file, index, count);
	unlock_dirt(file, operation->needs);
	pthread_rwlock_unlock(&file->shape);
	__sync_fetch_and_add(&operation->done, 1);
}

static struct worker worker_new(long number)
{
	struct worker worker = { .state = random_seed(number), .buffer = pages_alloc(MAX_RANGE) };

	if (pipe(worker.pipe))
		die("pipe");
	worker.ring = uring_new();
	return worker;
}

static void work(long number)
{
	struct worker worker = worker_new(number);

	while (!time_is_up(until))
		do_operation(&worker, draw_operation(&worker));
}

/* ---- what goes on beside it ---- */

/* Reads far and wide without any lock. */
static void make_noise(long number)
{
	uint64_t state = random_seed(1000 + number);
	struct page *pages = pages_alloc(32);

	while (!time_is_up(until)) {
		struct file *file = &files[random_next(&state) % file_count];
		long index = random_next(&state) % file->pages;

		if (pread(file->fd, pages, (1 + random_next(&state) % 32) * PAGE, index * PAGE) < 0)
			io_failed("noise");
		if (random_next(&state) % 8 == 0)
			posix_fadvise(file->fd, index * PAGE, 32 * PAGE, POSIX_FADV_DONTNEED);
		__sync_fetch_and_add(&noise_reads, 1);
	}
	free(pages);
}

static void churn_verify(int fd, struct page *pages, uint32_t id, uint32_t version)
{
	if (pread(fd, pages, CHURN_PAGES * PAGE, 0) != CHURN_PAGES * PAGE)
		io_failed("churn read");
	for (long i = 0; i < CHURN_PAGES; i++)
		page_check(&pages[i], id, i, version, "churn read");
}

/* A small file that is made, written, evicted, read, and removed, over and over: inode numbers are used again. */
static void churn(void)
{
	struct page *pages = pages_alloc(CHURN_PAGES);
	uint32_t version = 1;
	char path[300];

	snprintf(path, sizeof(path), "%s.churn", files[0].path);
	while (!time_is_up(until)) {
		uint32_t id = file_id(path);
		int fd = open_or_die(path, O_RDWR | O_CREAT | O_TRUNC);

		if (ftruncate(fd, CHURN_PAGES * PAGE))
			io_failed("churn truncate");
		churn_verify(fd, pages, id, 0);
		version++;
		for (long i = 0; i < CHURN_PAGES; i++)
			page_make(&pages[i], id, i, version);
		write_at(fd, pages, CHURN_PAGES * PAGE, 0, "churn write");
		if (fsync(fd))
			io_failed("churn fsync");
		for (int pass = 0; pass < 3; pass++) {
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			churn_verify(fd, pages, id, version);
		}
		close(fd);
		if (unlink(path))
			io_failed("churn unlink");
		churned++;
		usleep(20000);
	}
	free(pages);
}

static void *mix_thread(void *argument)
{
	long number = (long)argument, threads = option("threads", 6);

	if (number < threads)
		work(number);
	else if (number < threads + NOISE_THREADS)
		make_noise(number);
	else
		churn();
	return NULL;
}

/* ---- beginning and end ---- */

static void init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attributes;

	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attributes);
}

static void file_init(struct file *file, const char *path, long number, long pages)
{
	snprintf(file->path, sizeof(file->path), "%s.%ld", path, number);
	file->id = file_id(file->path);
	file->pages = pages;
	file->fd = open_or_die(file->path, O_RDWR | O_CREAT | O_TRUNC);
	file->direct = open_or_die(file->path, O_RDWR | O_DIRECT);
	if (ftruncate(file->fd, pages * PAGE))
		die("truncate");
	file->map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (file->map == MAP_FAILED)
		die("mmap");
	file->shadow = calloc(pages, sizeof(*file->shadow));
	file->lock = calloc(pages, sizeof(*file->lock));
	if (!file->shadow || !file->lock)
		die("memory");
	init_lock(&file->shape);
	init_lock(&file->dirt);
	for (long i = 0; i < pages; i++)
		init_lock(&file->lock[i]);
}

/* Without contents there is nothing to evict. */
static void file_fill(struct file *file, struct worker *worker)
{
	for (long index = 0; index + MAX_RANGE <= file->pages; index += MAX_RANGE)
		op_write(worker, file, index, MAX_RANGE);
	op_fsync(worker, file, 0, 1);
}

static void verify_file(struct file *file, struct page *pages, int fd, const char *how)
{
	for (long i = 0; i < file->pages; i += MAX_RANGE) {
		long count = file->pages - i < MAX_RANGE ? file->pages - i : MAX_RANGE;

		if (pread(fd, pages, count * PAGE, i * PAGE) != count * PAGE)
			io_failed(how);
		else
			check_range(file, pages, i, count, how);
	}
}

static void verify_all(struct worker *worker)
{
	for (long i = 0; i < file_count; i++) {
		struct file *file = &files[i];

		if (option("first", 0) && wrong_pages())
			return;
		verify_file(file, worker->buffer, file->fd, "final read");
		op_fsync(worker, file, 0, 1);
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
		verify_file(file, worker->buffer, file->fd, "final read after eviction");
		verify_file(file, worker->buffer, file->direct, "final direct read");
	}
}

static void report(double seconds)
{
	unsigned long sum = 0;

	printf("{\"mode\": \"mix\", \"seconds\": %.1f, \"operations\": {", seconds);
	for (size_t i = 0; i < OPERATIONS; i++) {
		printf("%s\"%s\": %lu", i ? ", " : "", operations[i].name, operations[i].done);
		sum += operations[i].done;
	}
	printf("}, \"total\": %lu, \"noise\": %lu, \"churned\": %lu, ", sum, noise_reads, churned);
	latency_print(&read_latency);
	printf(", \"bytes_verified\": %lu, \"wrong_pages\": %lu, \"errors\": %lu, \"collisions\": %lu}\n",
	       bytes_verified(), wrong_pages(), io_errors(), collisions());
}

/* stress mix FILE [mib=256] [seconds=40] [threads=6] [files=2] [seed=N] [first=0]: the files are FILE.0, FILE.1, … */
int mode_mix(const char *path)
{
	double seconds = option("seconds", 40), start;
	struct worker worker = worker_new(-1);

	file_count = option("files", 2);
	if (file_count < 1 || file_count > MAX_FILES) {
		errno = EINVAL;
		die("files");
	}
	for (long i = 0; i < file_count; i++) {
		file_init(&files[i], path, i, option("mib", 256) * PAGES_PER_MIB / file_count);
		file_fill(&files[i], &worker);
	}
	start = now();
	until = start + seconds;
	run_threads(option("threads", 6) + NOISE_THREADS + 1, mix_thread);
	seconds = now() - start;
	verify_all(&worker);
	report(seconds);
	return verdict();
}
