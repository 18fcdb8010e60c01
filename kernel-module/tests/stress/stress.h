/* SPDX-License-Identifier: GPL-2.0 */
/*
 * stress - workloads that know what every page must contain.
 *
 * A page is named by its file, its index and its version, and carries these
 * three and a pattern made of them, so that any page found in the wrong place or
 * of the wrong age can be told from the right one, and named. Version 0 is a
 * page of zeros (a hole).
 *
 * Each mode prints one line of JSON at the end and exits with
 *   0 all is well, 1 a wrong page was read, 2 a system call failed or bad usage.
 */
#ifndef STRESS_H
#define STRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE		4096L
#define PAGES_PER_MIB	256L

/* ---- page.c: contents of pages ---- */

struct page {
	uint64_t word[PAGE / 8];
};

void page_make(struct page *page, uint32_t file, uint64_t index, uint32_t version);
bool page_is(const struct page *page, uint32_t file, uint64_t index, uint32_t version);

/* The version that a page claims to be of; 0: it claims nothing. */
uint32_t page_version(const struct page *page);

/* Like page_is(), and a page that is wrong is reported and counted. */
bool page_check(const struct page *page, uint32_t file, uint64_t index, uint32_t version, const char *how);

/* Reports and counts a wrong page that page_is() cannot describe (parts of a page). */
void page_wrong(const struct page *page, uint32_t file, uint64_t index, uint32_t version, const char *how);

uint32_t file_id(const char *path);
struct page *pages_alloc(size_t count);
unsigned long wrong_pages(void);

/* How many bytes page_check() has looked at. */
unsigned long bytes_verified(void);

/* ---- util.c: options, time, random numbers, latencies, errors ---- */

/* Value of the argument `name=value`, or the default. */
long option(const char *name, long otherwise);
const char *option_text(const char *name, const char *otherwise);
void options_init(char **arguments);

double now(void);
void end_when_told(void);
bool time_is_up(double until);
uint64_t random_next(uint64_t *state);
uint64_t random_seed(long thread);

/* Counts and reports a system call that failed. */
void io_failed(const char *what);
unsigned long io_errors(void);

/*
 * fsync(); a failure is an error, but for one that is counted as a collision: btrfs
 * before 6.12 cannot drop a page that is just being read when a direct write has
 * overwritten it, says so in the kernel's log, and gives EIO here though all is on
 * the disk, with or without Tidepool.
 */
void sync_file(int fd);
unsigned long collisions(void);

/* Prints what and why, and exits with 2. */
void die(const char *what) __attribute__((noreturn));

/* Exit code by what was counted. */
int verdict(void);

/* Latencies in logarithmic buckets, 16 to each power of two; may be shared by threads. */
#define LATENCY_BUCKETS (64 * 16)

struct latency {
	unsigned long bucket[LATENCY_BUCKETS];
	unsigned long count;
	double sum, squares, max;
};

void latency_add(struct latency *latency, double seconds);
double latency_quantile_us(const struct latency *latency, double quantile);

/* Prints `"p50_us": …, "p99_us": …, "mean_us": …, "deviation_us": …, "max_us": …`. */
void latency_print(const struct latency *latency);

int open_or_die(const char *path, int flags);
void run_threads(long count, void *(*body)(void *));

/* ---- uring.c: asynchronous requests, one user to a ring ---- */

#define URING_DEPTH	16

struct uring;
struct uring *uring_new(void);
void uring_add(struct uring *ring, bool write, int fd, void *data, long length, long offset);

/* Submits what was added and waits for all of it; true if each was done whole. */
bool uring_run(struct uring *ring, long count);

/* Makes a file's own command of up to 16 bytes, and waits for it: what came of it. */
int uring_command(struct uring *ring, int fd, uint32_t what, const void *command, size_t size);

/* ---- values.c: values of /dev/tidepool ---- */

/* A descriptor with a pool, as the options say it is to be. */
int value_pool(const char *name, unsigned int mode, unsigned long quota);

/* One call: 0 or a negative errno. *@size: of the value, or of the room for it; set to the value's. */
int value_call(int fd, uint32_t what, const void *key, size_t key_size, void *value, uint32_t *size, long expire_ms);

/* Of up to @most bytes; its first ones say its version. */
long value_size(uint64_t version, long most);
void value_make(char *value, long key, uint64_t version, long size);
uint64_t value_version(const char *value);
bool value_is(const char *value, long size, char *made, long key, uint64_t version, long most);

/* Reports and counts one that is wrong. */
void value_wrong(long key, uint64_t version, const char *how);

/* ---- the modes ---- */

int mode_fill(const char *path);
int mode_overwrite(const char *path);
int mode_random(const char *path);
int mode_sequential(const char *path);
int mode_many(const char *folder);
int mode_mix(const char *path);
int mode_race(const char *path);
int mode_work(const char *folder);
int mode_subvolume(const char *path);
int mode_exchange(const char *path);
int mode_blocks(const char *path);
int mode_journal(const char *path);
int mode_verity(const char *path);
int mode_dax(const char *path);
int mode_anon(const char *mib);
int mode_grow(const char *mib);
int mode_spare(const char *mib);
int mode_server(const char *port);
int mode_client(const char *address);
int mode_garbage(const char *address);
int mode_half_open(const char *address);
int mode_resident(const char *path);
int mode_scan(const char *mib);
int mode_sort(const char *mib);
int mode_group(const char *mib);
int mode_device(const char *path);
int mode_compare(const char *path);
int mode_overlap(const char *path);
int mode_durable(const char *path);
int mode_endured(const char *path);
int mode_values(const char *pool);
int mode_repeat(const char *pool);
int mode_value(const char *pool);
int mode_crowd(const char *pool);
int mode_calls(const char *folder);

#endif
