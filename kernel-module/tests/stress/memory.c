// SPDX-License-Identifier: GPL-2.0
/* Memory for a program of the guest's own: how long each first touch of a page takes. */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stress.h"

static struct page *memory_alloc(long pages)
{
	struct page *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

/* Returns the seconds that the first touches of all these pages took. */
static double touch(struct page *memory, long pages, struct latency *latency)
{
	double start = now();

	for (long i = 0; i < pages; i++) {
		double before = now();

		memory[i].word[0] = i;
		latency_add(latency, now() - before);
	}
	return now() - start;
}

static void sleep_until(double when)
{
	double left = when - now();

	if (left > 0)
		usleep(left * 1e6);
}

/* stress anon MIB [hold=0]: touches that much memory, verifies it, and keeps it for `hold` seconds, or until told. */
int mode_anon(const char *mib)
{
	long pages = strtol(mib, NULL, 0) * PAGES_PER_MIB;
	struct latency latency = { .count = 0 };
	struct page *memory = memory_alloc(pages);
	double seconds = touch(memory, pages, &latency), until;

	for (long i = 0; i < pages; i++)
		if (memory[i].word[0] != (uint64_t)i || memory[i].word[1] != 0)
			page_wrong(&memory[i], 0, i, 0, "anonymous memory");
	printf("{\"mode\": \"anon\", \"mib\": %ld, \"seconds\": %.3f, ", pages / PAGES_PER_MIB, seconds);
	latency_print(&latency);
	printf(", \"wrong_pages\": %lu, \"errors\": 0}\n", wrong_pages());
	fflush(stdout);
	for (until = now() + option("hold", 0); !time_is_up(until);)
		usleep(100000);
	return verdict();
}

/*
 * stress grow MIB [chunk=256] [seconds=20] [hold=5]: takes that much memory in chunks of so many KiB, evenly over the
 * seconds, keeps it, and gives it back, chunk by chunk, in a quarter of them.
 */
int mode_grow(const char *mib)
{
	static struct latency page_latency, chunk_latency;
	long chunk = option("chunk", 256) * 1024 / PAGE, chunks = strtol(mib, NULL, 0) * PAGES_PER_MIB / chunk;
	struct page *memory = memory_alloc(chunks * chunk);
	double seconds = option("seconds", 20), start = now();

	for (long i = 0; i < chunks; i++) {
		sleep_until(start + seconds * i / chunks);
		latency_add(&chunk_latency, touch(&memory[i * chunk], chunk, &page_latency));
	}
	sleep_until(start + seconds + option("hold", 5));
	for (long i = 0; i < chunks * chunk; i++)
		if (memory[i].word[0] != (uint64_t)i % chunk || memory[i].word[1] != 0)
			page_wrong(&memory[i], 0, i, 0, "anonymous memory");
	for (long i = 0; i < chunks; i++) {
		munmap(&memory[i * chunk], chunk * PAGE);
		usleep(seconds / 4 / chunks * 1e6);
	}
	printf("{\"mode\": \"grow\", \"chunks\": {");
	latency_print(&chunk_latency);
	printf("}, \"pages\": {");
	latency_print(&page_latency);
	printf("}, \"wrong_pages\": %lu, \"errors\": 0}\n", wrong_pages());
	return verdict();
}

/* A descriptor that poll() wakes when programs have waited for memory for so long within half a second. */
static int pressure_open(long stall_us)
{
	int fd = open_or_die("/proc/pressure/memory", O_RDWR | O_NONBLOCK);

	if (dprintf(fd, "some %ld 500000\n", stall_us) < 0)
		die("a trigger for pressure");
	return fd;
}

/*
 * stress spare MIB [step=0] [stall_us=1000]: holds that much memory as a lender would that has nothing but the kernel's
 * word for pressure (PSI), and drops `step` MiB of it, or all, each time that programs have waited for so long.
 */
int mode_spare(const char *mib)
{
	long pages = strtol(mib, NULL, 0) * PAGES_PER_MIB, step = option("step", 0) * PAGES_PER_MIB, held = pages;
	struct latency latency = { .count = 0 };
	struct page *memory = memory_alloc(pages);
	struct pollfd pressure = { .fd = pressure_open(option("stall_us", 1000)), .events = POLLPRI };

	touch(memory, pages, &latency);
	printf("holds %ld MiB\n", held / PAGES_PER_MIB);
	while (!time_is_up(INFINITY)) {
		if (poll(&pressure, 1, 1000) <= 0 || !held)
			continue;
		long drop = step && step < held ? step : held;

		held -= drop;
		munmap(&memory[held], drop * PAGE);
	}
	printf("{\"mode\": \"spare\", \"held_mib\": %ld, \"wrong_pages\": 0, \"errors\": 0}\n", held / PAGES_PER_MIB);
	return verdict();
}

/*
 * A page is as it was left; one of four is left otherwise. That one is written before it is read, as an object is whose
 * references are counted: its swap is free then, and it gets new swap beside others.
 */
static void visit(struct page *memory, uint32_t *version, long i, uint64_t *state)
{
	bool changes = !version[i] || random_next(state) % 4 == 0;

	if (changes)
		__atomic_fetch_add(&memory[i].word[0], 0, __ATOMIC_RELAXED);
	if (version[i])
		page_check(&memory[i], 0, i, version[i], "swapped memory");
	if (changes)
		page_make(&memory[i], 0, i, ++version[i]);
}

/*
 * stress scan MIB [seconds=20] [passes=0] [seed=N]: fills that much memory, goes through it so many times, and then,
 * over and over, for so long; `visits` are those of that time.
 */
int mode_scan(const char *mib)
{
	long pages = strtol(mib, NULL, 0) * PAGES_PER_MIB, before = pages * (1 + option("passes", 0)), visits;
	struct page *memory = memory_alloc(pages);
	uint32_t *version = calloc(pages, sizeof(*version));
	uint64_t state = random_seed(0);
	struct latency latency = { .count = 0 };
	double seconds, until;

	if (!version)
		die("versions");
	for (visits = 0; visits < before; visits++)
		visit(memory, version, visits % pages, &state);
	seconds = now();
	for (until = seconds + option("seconds", 20); !time_is_up(until); visits++) {
		double start = now();

		visit(memory, version, visits % pages, &state);
		latency_add(&latency, now() - start);
	}
	seconds = now() - seconds;
	printf("{\"mode\": \"scan\", \"visits\": %ld, \"seconds\": %.3f, ", visits - before, seconds);
	latency_print(&latency);
	printf(", \"wrong_pages\": %lu, \"errors\": 0}\n", wrong_pages());
	return verdict();
}

#define RECORD_WORDS	8	/* the first is the key, and the others follow from it */
#define RECORD		(RECORD_WORDS * sizeof(uint64_t))

static uint64_t records_make(uint64_t *memory, long count)
{
	uint64_t state = random_seed(0), sum = 0;

	for (long i = 0; i < count * RECORD_WORDS; i++) {
		memory[i] = i % RECORD_WORDS ? memory[i - 1] * 0x9e3779b97f4a7c15ULL : random_next(&state);
		sum += memory[i];
	}
	return sum;
}

typedef struct {
	uint64_t word[RECORD_WORDS];
} record;

static void records_swap(record *one, record *other)
{
	record kept = *one;

	*one = *other;
	*other = kept;
}

/* Hoare's: how many records come first, none of them greater than any of the rest. */
static long records_part(record *at, long count)
{
	uint64_t pivot = at[(count - 1) / 2].word[0];
	long low = -1, high = count;

	for (;;) {
		while (at[++low].word[0] < pivot)
			;
		while (at[--high].word[0] > pivot)
			;
		if (low >= high)
			return high + 1;
		records_swap(&at[low], &at[high]);
	}
}

/* Where they are, from both ends at a time: the C library's qsort() has pointers to them beside, and goes by these. */
static void records_sort(record *at, long count)
{
	while (count > 1) {
		long first = records_part(at, count);

		records_sort(at, first);
		at += first;
		count -= first;
	}
}

/* Each record is whole and behind a lesser one, and all together are those that were made. */
static void records_check(const uint64_t *memory, long count, uint64_t sum)
{
	const long of_page = PAGE / RECORD;

	for (long i = 0; i < count * RECORD_WORDS; i++) {
		bool right = i % RECORD_WORDS ? memory[i] == memory[i - 1] * 0x9e3779b97f4a7c15ULL :
						i == 0 || memory[i] >= memory[i - RECORD_WORDS];

		sum -= memory[i];
		if (!right)
			page_wrong((const struct page *)memory + i / RECORD_WORDS / of_page, 0,
				   i / RECORD_WORDS / of_page, 0, "sorted memory");
	}
	if (sum)
		page_wrong((const struct page *)memory, 0, 0, 0, "other records than were sorted");
}

/* stress sort MIB [seed=N]: fills that much memory with records of 64 bytes, and sorts them where they are. */
int mode_sort(const char *mib)
{
	long pages = strtol(mib, NULL, 0) * PAGES_PER_MIB, count = pages * PAGE / RECORD;
	uint64_t *memory = memory_alloc(pages)->word;
	uint64_t sum = records_make(memory, count);
	double seconds = now();

	records_sort((record *)memory, count);
	seconds = now() - seconds;
	records_check(memory, count, sum);
	printf("{\"mode\": \"sort\", \"records\": %ld, \"seconds\": %.3f, \"wrong_pages\": %lu, \"errors\": 0}\n",
	       count, seconds, wrong_pages());
	return verdict();
}

struct row {
	uint64_t key, value;
};

/*
 * stress group MIB [passes=1] [seed=N]: fills that much memory, three quarters with rows of a key and a value and the
 * rest with a sum for each key, and adds the values up by their keys, as an analytic job does.
 */
int mode_group(const char *mib)
{
	long bytes = strtol(mib, NULL, 0) * PAGES_PER_MIB * PAGE, passes = option("passes", 1);
	long keys = bytes / 4 / sizeof(uint64_t), rows = bytes / 4 * 3 / sizeof(struct row);
	uint64_t *sums = memory_alloc(bytes / PAGE)->word, state = random_seed(0), expected = 0;
	struct row *row = (struct row *)(sums + keys);
	double seconds;

	memset(sums, 0, keys * sizeof(*sums));
	for (long i = 0; i < rows; i++) {
		row[i].key = random_next(&state) % keys;
		row[i].value = random_next(&state);
		expected += row[i].value * passes;
	}
	seconds = now();
	for (long i = 0; i < rows * passes; i++)
		sums[row[i % rows].key] += row[i % rows].value;
	seconds = now() - seconds;
	for (long i = 0; i < keys; i++)
		expected -= sums[i];
	if (expected)
		page_wrong((const struct page *)sums, 0, 0, 0, "sums of other values than were there");
	printf("{\"mode\": \"group\", \"rows\": %ld, \"seconds\": %.3f, \"wrong_pages\": %lu, \"errors\": 0}\n",
	       rows * passes, seconds, wrong_pages());
	return verdict();
}

/* stress resident FILE: how many of its pages are in the page cache. */
int mode_resident(const char *path)
{
	int fd = open_or_die(path, O_RDONLY);
	long pages = lseek(fd, 0, SEEK_END) / PAGE, resident = 0;
	void *map = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char *in = malloc(pages);

	if (map == MAP_FAILED || !in || mincore(map, pages * PAGE, in))
		die("mincore");
	for (long i = 0; i < pages; i++)
		resident += in[i] & 1;
	printf("{\"mode\": \"resident\", \"pages\": %ld, \"resident\": %ld}\n", pages, resident);
	return 0;
}
