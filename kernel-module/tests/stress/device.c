// SPDX-License-Identifier: GPL-2.0
/*
 * A block device that is read and written in all sizes, past the page cache, by threads
 * that know what each sector may contain: nothing older than what was there when the
 * read began, and nothing newer than what somebody had begun to write when it ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "stress.h"

#define SECTOR		512L
#define BLOCK_SECTORS	(PAGE / SECTOR)
#define MAX_SECTORS	(100 * BLOCK_SECTORS)
#define ZEROS		(1U << 31)	/* of a version: the sector was zeroed or discarded */

struct worker {
	uint64_t state;
	char *buffer;			/* MAX_SECTORS, and a page */
};

static struct {
	int fd;
	uint32_t id;
	long sectors;
	uint32_t *begun, *done;		/* versions: what was last handed over, and what was last on disk */
	char *busy;			/* a block that somebody changes */
} dev;

static double until;
static uint32_t last_version;
static unsigned long reads, writes, refused, verified;
static bool may_fail;

static uint64_t draw(struct worker *worker, uint64_t below)
{
	return random_next(&worker->state) % below;
}

/* ---- what a sector contains ---- */

static void sector_make(char *at, long sector, uint32_t version)
{
	struct page page;

	page_make(&page, dev.id, sector, version & ZEROS ? 0 : version);
	memcpy(at, &page, SECTOR);
}

static bool sector_is(const char *at, long sector, uint32_t version)
{
	char made[SECTOR];

	sector_make(made, sector, version);
	return !memcmp(at, made, SECTOR);
}

/* A version between the two, as its header says; what is being written may be torn. */
static bool sector_between(const char *at, uint32_t least, uint32_t most)
{
	struct page page = { .word = { 0 } };
	uint32_t version;

	memcpy(&page, at, SECTOR);
	version = page_version(&page);
	return !version || (version >= (least & ~ZEROS) && version <= (most & ~ZEROS));
}

static void sector_check(const char *at, long sector, uint32_t least, uint32_t most, const char *how)
{
	struct page page = { .word = { 0 } };

	if (least == most ? sector_is(at, sector, least) : sector_between(at, least, most))
		return;
	memcpy(&page, at, SECTOR);
	page_wrong(&page, dev.id, sector, least, how);
}

/* ---- reading and changing sectors ---- */

static void io_ended(ssize_t n, long bytes, const char *how)
{
	if (n == bytes)
		return;
	if (may_fail && n < 0 && errno == EIO)
		__sync_fetch_and_add(&refused, 1);
	else
		io_failed(how);
}

static void read_sectors(char *buffer, long first, long count, const char *how)
{
	uint32_t least[MAX_SECTORS];
	ssize_t n;

	for (long i = 0; i < count; i++)
		least[i] = __atomic_load_n(&dev.done[first + i], __ATOMIC_ACQUIRE);
	n = pread(dev.fd, buffer, count * SECTOR, first * SECTOR);
	io_ended(n, count * SECTOR, how);
	for (long i = 0; n == count * SECTOR && i < count; i++)
		sector_check(buffer + i * SECTOR, first + i, least[i],
			     __atomic_load_n(&dev.begun[first + i], __ATOMIC_ACQUIRE), how);
	__sync_fetch_and_add(&reads, 1);
	__sync_fetch_and_add(&verified, n > 0 ? n : 0);
}

static void begin(long first, long count, uint32_t flag)
{
	for (long i = 0; i < count; i++)
		__atomic_store_n(&dev.begun[first + i], __sync_add_and_fetch(&last_version, 1) | flag,
				 __ATOMIC_RELEASE);
}

static void end(bool done, long first, long count)
{
	for (long i = 0; done && i < count; i++)
		__atomic_store_n(&dev.done[first + i], dev.begun[first + i], __ATOMIC_RELEASE);
	__sync_fetch_and_add(&writes, 1);
}

static void write_sectors(char *buffer, long first, long count)
{
	ssize_t n;

	begin(first, count, 0);
	for (long i = 0; i < count; i++)
		sector_make(buffer + i * SECTOR, first + i, dev.begun[first + i]);
	n = pwrite(dev.fd, buffer, count * SECTOR, first * SECTOR);
	io_ended(n, count * SECTOR, "write");
	end(n == count * SECTOR, first, count);
}

static void zero_sectors(long first, long count, unsigned long request)
{
	uint64_t range[2] = { first * SECTOR, count * SECTOR };
	int err;

	begin(first, count, ZEROS);
	err = ioctl(dev.fd, request, range);
	io_ended(err ? -1 : 0, 0, "zero");
	end(!err, first, count);
}

/* ---- one at a time changes a block ---- */

static void release(long first, long last)
{
	while (first <= last)
		__atomic_clear(&dev.busy[first++], __ATOMIC_RELEASE);
}

static bool claim(long first, long last)
{
	for (long i = first; i <= last; i++) {
		if (__atomic_test_and_set(&dev.busy[i], __ATOMIC_ACQUIRE)) {
			release(first, i - 1);
			return false;
		}
	}
	return true;
}

/* Whole blocks mostly, one or some or more than device-mapper takes in one; else any sectors. */
static void choose(struct worker *worker, long *first, long *count, long *skew)
{
	*skew = 0;
	if (draw(worker, 4)) {
		*count = 1 + draw(worker, draw(worker, 16) ? 12 : MAX_SECTORS / BLOCK_SECTORS);
		*first = draw(worker, dev.sectors / BLOCK_SECTORS - *count + 1) * BLOCK_SECTORS;
		*count *= BLOCK_SECTORS;
	} else {
		*count = 1 + draw(worker, 3 * BLOCK_SECTORS);
		*first = draw(worker, dev.sectors - *count + 1);
	}
	if (!draw(worker, 8))
		*skew = SECTOR;
}

static void change(struct worker *worker, char *buffer, long first, long count)
{
	long from = first / BLOCK_SECTORS, to = (first + count - 1) / BLOCK_SECTORS;

	if (!claim(from, to))
		return;
	if (draw(worker, 8))
		write_sectors(buffer, first, count);
	else
		zero_sectors(first, count, option("discard", 0) ? BLKDISCARD : BLKZEROOUT);
	release(from, to);
}

static void *work(void *number)
{
	struct worker worker = { random_seed((long)number), (char *)pages_alloc(MAX_SECTORS / BLOCK_SECTORS + 1) };

	while (!time_is_up(until)) {
		long first, count, skew;

		choose(&worker, &first, &count, &skew);
		if (draw(&worker, 3))
			read_sectors(worker.buffer + skew, first, count, "mixture");
		else
			change(&worker, worker.buffer + skew, first, count);
	}
	free(worker.buffer);
	return NULL;
}

/* ---- the whole device ---- */

static void each(char *buffer, void (*what)(char *buffer, long first, long count))
{
	for (long first = 0; first < dev.sectors; first += 32 * BLOCK_SECTORS) {
		long left = dev.sectors - first;

		what(buffer, first, left < 32 * BLOCK_SECTORS ? left : 32 * BLOCK_SECTORS);
	}
}

static void verify(char *buffer, long first, long count)
{
	read_sectors(buffer, first, count, "verification");
}

/* The disk below has the same: what the pool has is what would be read without it. */
static void compare(char *buffer, long first, long count)
{
	char *other = (char *)pages_alloc(32);
	int disk = open_or_die(option_text("beside", ""), O_RDONLY | O_DIRECT);

	if (pread(dev.fd, buffer, count * SECTOR, first * SECTOR) != count * SECTOR ||
	    pread(disk, other, count * SECTOR, first * SECTOR) != count * SECTOR)
		io_failed("compare");
	for (long i = 0; i < count; i += BLOCK_SECTORS)
		if (memcmp(buffer + i * SECTOR, other + i * SECTOR, PAGE))
			page_wrong((struct page *)(buffer + i * SECTOR), dev.id, first + i, dev.done[first + i],
				   "what the disk does not have");
	close(disk);
	free(other);
}

static void dev_open(const char *path)
{
	dev.fd = open_or_die(path, O_RDWR | O_DIRECT);
	dev.id = file_id(path);
	dev.sectors = option("mib", 16) * PAGES_PER_MIB * BLOCK_SECTORS;
	dev.begun = calloc(dev.sectors, sizeof(*dev.begun));
	dev.done = calloc(dev.sectors, sizeof(*dev.done));
	dev.busy = calloc(dev.sectors / BLOCK_SECTORS, 1);
	if (!dev.begun || !dev.done || !dev.busy)
		die("sectors");
}

/*
 * stress device DEVICE beside=DISK [mib=16] [seconds=10] [threads=4] [discard=0] [errors=0]: its first MiB; with
 * `discard` discarded blocks must be zeros, with `errors` I/O errors may come. `operations` are those of the mixture,
 * without those that write all of it before and verify it afterwards, and `seconds` is how long they took.
 */
int mode_device(const char *path)
{
	char *buffer = (char *)pages_alloc(33);
	unsigned long filled, operations;
	double seconds;

	dev_open(path);
	each(buffer, write_sectors);
	filled = writes;
	may_fail = option("errors", 0);
	seconds = now();
	until = seconds + option("seconds", 10);
	run_threads(option("threads", 4), work);
	seconds = now() - seconds;
	operations = reads + writes - filled;
	may_fail = false;
	sync_file(dev.fd);
	each(buffer, compare);
	each(buffer, verify);
	printf("{\"mode\": \"device\", \"reads\": %lu, \"writes\": %lu, \"operations\": %lu, \"seconds\": %.3f, ",
	       reads, writes, operations, seconds);
	printf("\"bytes_verified\": %lu, \"refused\": %lu, \"wrong_pages\": %lu, \"errors\": %lu}\n", verified,
	       refused, wrong_pages(), io_errors());
	return verdict();
}

/* stress compare DEVICE beside=DISK [mib=16]: whether both have the same. */
int mode_compare(const char *path)
{
	dev_open(path);
	each((char *)pages_alloc(33), compare);
	printf("{\"mode\": \"compare\", \"wrong_pages\": %lu, \"errors\": %lu}\n", wrong_pages(), io_errors());
	return verdict();
}

/*
 * stress overlap DEVICE beside=DISK [rounds=100]: of two writes at a time to the same blocks one is last, and it is the
 * same one for everybody who reads them.
 */
int mode_overlap(const char *path)
{
	struct page *pages = pages_alloc(16);
	struct uring *ring = uring_new();

	dev_open(path);
	for (long round = 0; round < option("rounds", 100); round++) {
		long block = round * 8;

		for (int i = 0; i < 8; i++)
			page_make(&pages[i], dev.id, block, ++last_version);
		uring_add(ring, true, dev.fd, pages, 4 * PAGE, block * PAGE);
		uring_add(ring, true, dev.fd, pages + 4, 4 * PAGE, (block + 1) * PAGE);
		if (!uring_run(ring, 2))
			io_failed("write");
		sync_file(dev.fd);
		compare((char *)(pages + 8), block * BLOCK_SECTORS, 5 * BLOCK_SECTORS);
	}
	printf("{\"mode\": \"overlap\", \"wrong_pages\": %lu, \"errors\": %lu}\n", wrong_pages(), io_errors());
	return verdict();
}
