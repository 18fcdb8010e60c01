// SPDX-License-Identifier: GPL-2.0
/* Work that is mostly the kernel's: what it costs in processor time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

#define WORK_FILES	16
#define WORK_PAGES	64L

static double processor_seconds(void)
{
	double seconds = 0;

	for (int i = 0; i < 2; i++) {
		struct rusage usage;

		getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &usage);
		seconds += usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
		seconds += usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
	}
	return seconds;
}

static void check_pages(const struct page *pages, uint32_t file, long index, long count)
{
	for (long i = 0; i < count; i += 8)	/* the work is to be the kernel's */
		page_check(&pages[i], file, index + i, 1, "work");
}

/* A file is written, read in all ways, evicted, read from disk, cut and removed. */
static void work_on_file(const char *path, struct page *pages)
{
	int fd = open_or_die(path, O_RDWR | O_CREAT | O_TRUNC);
	uint32_t file = file_id(path);
	struct page *map;

	for (long i = 0; i < WORK_PAGES; i++)
		page_make(&pages[i], file, i, 1);
	if (pwrite(fd, pages, WORK_PAGES * PAGE, 0) != WORK_PAGES * PAGE || fdatasync(fd))
		io_failed("write");
	for (int pass = 0; pass < 4; pass++) {
		if (pread(fd, pages, WORK_PAGES * PAGE, 0) != WORK_PAGES * PAGE)
			io_failed("read");
		check_pages(pages, file, 0, WORK_PAGES);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	map = mmap(NULL, WORK_PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("mmap");
	check_pages(map, file, 0, WORK_PAGES);
	munmap(map, WORK_PAGES * PAGE);
	if (ftruncate(fd, WORK_PAGES * PAGE / 2) || unlink(path) || close(fd))
		io_failed("truncate");
}

static void work_on_names(const char *folder)
{
	for (int i = 0; i < 50; i++) {
		DIR *dir = opendir(folder);
		struct dirent *entry;
		struct stat stat;

		if (!dir)
			die(folder);
		while ((entry = readdir(dir)))
			fstatat(dirfd(dir), entry->d_name, &stat, 0);
		closedir(dir);
	}
}

static void work_on_processes(void)
{
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
	}
}

/* stress work FOLDER [rounds=10]: files, names and processes; the processor time that all of it took. */
int mode_work(const char *folder)
{
	struct page *pages = pages_alloc(WORK_PAGES);
	long rounds = option("rounds", 10);
	char path[256];

	if (mkdir(folder, 0755) && access(folder, W_OK))
		die(folder);
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < WORK_FILES; i++) {
			snprintf(path, sizeof(path), "%s/%d", folder, i);
			work_on_file(path, pages);
		}
		work_on_names(folder);
		work_on_processes();
	}
	printf("{\"mode\": \"work\", \"rounds\": %ld, \"processor_seconds\": %.6f, \"wrong_pages\": %lu, \"errors\": %lu}\n",
	       rounds, processor_seconds(), wrong_pages(), io_errors());
	return verdict();
}
