// SPDX-License-Identifier: GPL-2.0
/*
 * One small file, evicted and read back all the time by one thread while the
 * other changes it in a way that goes round the page cache. Then the racing
 * pauses, the file is evicted once more, and must read as what it was changed to:
 * a page that was handed out during the change would come back now.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/fs.h>

#include "stress.h"

#define RACE_PAGES 64L

enum change { DIRECT, PUNCH, TRUNCATE, CLONE };

static int cached, direct, source;
static volatile bool stop, pause_wanted, paused;

/*
 * A direct write, and on some kernels a clone, is followed by an invalidation
 * unless the file has no page in the cache just then, and btrfs begins a punch
 * anew as long as it has one, so against these the file is kept empty for most of
 * the time.
 */
static void *racer(void *change)
{
	struct page *pages = pages_alloc(RACE_PAGES);
	uint64_t state = random_seed(1);

	while (!stop) {
		if (pause_wanted) {
			paused = true;
			usleep(50);
			continue;
		}
		paused = false;
		if (pread(cached, pages, RACE_PAGES * PAGE, 0) < 0)
			io_failed("racing read");
		posix_fadvise(cached, 0, 0, POSIX_FADV_DONTNEED);
		if ((enum change)(long)change != TRUNCATE)
			usleep(random_next(&state) % 1000);
	}
	free(pages);
	return NULL;
}

static void race_pause(void)
{
	pause_wanted = true;
	while (!paused)
		usleep(50);
}

static void race_go(uint64_t *state)
{
	pause_wanted = false;
	while (paused)
		usleep(50);
	usleep(300 + random_next(state) % 2000);
}

static void write_version(int fd, struct page *pages, uint32_t file, uint32_t version)
{
	for (long i = 0; i < RACE_PAGES; i++)
		page_make(&pages[i], file, i, version);
	if (pwrite(fd, pages, RACE_PAGES * PAGE, 0) != RACE_PAGES * PAGE)
		io_failed("write");
}

/* Changes the file; the version it then has. */
static uint32_t apply(enum change change, struct page *pages, uint32_t file, uint32_t version)
{
	switch (change) {
	case DIRECT:
		write_version(direct, pages, file, version);
		return version;
	case PUNCH:
		if (fallocate(cached, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RACE_PAGES * PAGE))
			io_failed("punch");
		return 0;
	case TRUNCATE:
		if (ftruncate(cached, 0) || ftruncate(cached, RACE_PAGES * PAGE))
			io_failed("truncate");
		return 0;
	case CLONE:
		write_version(source, pages, file, version);
		if (ioctl(cached, FICLONE, source))
			io_failed("clone");
		return version;
	}
	return 0;
}

static void verify(struct page *pages, uint32_t file, uint32_t version)
{
	posix_fadvise(cached, 0, 0, POSIX_FADV_DONTNEED);
	memset(pages, 0xff, RACE_PAGES * PAGE);
	if (pread(cached, pages, RACE_PAGES * PAGE, 0) != RACE_PAGES * PAGE)
		io_failed("verifying read");
	for (long i = 0; i < RACE_PAGES; i++)
		page_check(&pages[i], file, i, version, "race");
}

static enum change parse_change(const char *name)
{
	return !strcmp(name, "direct") ? DIRECT : !strcmp(name, "punch") ? PUNCH :
	       !strcmp(name, "clone") ? CLONE : TRUNCATE;
}

/* Another file that holds what this one is to become a clone of. */
static int open_source(const char *path)
{
	char name[300];

	snprintf(name, sizeof(name), "%s.source", path);
	return open_or_die(name, O_RDWR | O_CREAT | O_TRUNC);
}

/* stress race FILE [change=direct|punch|truncate|clone] [seconds=10] [first=0] */
int mode_race(const char *path)
{
	enum change change = parse_change(option_text("change", "direct"));
	struct page *pages = pages_alloc(RACE_PAGES);
	double until = now() + option("seconds", 10);
	uint64_t state = random_seed(0);
	uint32_t file = file_id(path), version = 1, expected;
	pthread_t thread;

	cached = open_or_die(path, O_RDWR | O_CREAT | O_TRUNC);
	direct = open_or_die(path, O_RDWR | O_DIRECT);
	source = open_source(path);
	pause_wanted = true;
	if (pthread_create(&thread, NULL, racer, (void *)change))
		die("thread");
	race_pause();
	while (!time_is_up(until)) {
		/* clean pages on disk first: only those can be evicted into the pool */
		if (change != DIRECT || version == 1)
			write_version(cached, pages, file, ++version);
		sync_file(cached);
		race_go(&state);
		expected = apply(change, pages, file, ++version);
		race_pause();
		verify(pages, file, expected);
	}
	stop = true;
	pthread_join(thread, NULL);
	printf("{\"mode\": \"race\", \"change\": \"%s\", \"changes\": %u, \"wrong_pages\": %lu, \"errors\": %lu, "
	       "\"collisions\": %lu}\n",
	       option_text("change", "direct"), version, wrong_pages(), io_errors(), collisions());
	return verdict();
}
