// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "stress.h"

#define MAX_REPORTS 12
#define MAX_THREADS 256

static char **options;
static volatile sig_atomic_t ended;
static unsigned long errors, collided;
static pthread_mutex_t latency_lock = PTHREAD_MUTEX_INITIALIZER;

void options_init(char **arguments)
{
	options = arguments;
}

const char *option_text(const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (char **argument = options; *argument; argument++)
		if (!strncmp(*argument, name, length) && (*argument)[length] == '=')
			return *argument + length + 1;
	return otherwise;
}

long option(const char *name, long otherwise)
{
	const char *text = option_text(name, NULL);

	return text ? strtol(text, NULL, 0) : otherwise;
}

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void told_to_end(int signal)
{
	(void)signal;
	ended = 1;
}

/* SIGTERM ends what goes on for some time as if its time were up; its report says how far it came. */
void end_when_told(void)
{
	signal(SIGTERM, told_to_end);
}

/* With `first=1` one wrong page is enough: whoever only asks whether there is one need not wait. */
bool time_is_up(double until)
{
	static long first = -1;

	if (first < 0)
		first = option("first", 0);
	return ended || (first && wrong_pages()) || now() >= until;
}

uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* By the option `seed`, so that a run can be repeated; without it each run differs. */
uint64_t random_seed(long thread)
{
	uint64_t seed = option("seed", 0);

	if (!seed && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		die("getrandom");
	seed = (seed + thread + 1) * 0x9e3779b97f4a7c15ULL;
	return seed ? seed : 1;
}

void io_failed(const char *what)
{
	int error = errno;

	if (__sync_fetch_and_add(&errors, 1) < MAX_REPORTS)
		printf("FAILED %s: %s\n", what, strerror(error));
}

unsigned long io_errors(void)
{
	return errors;
}

/* Whether the kernel's log has a line with that text. */
static bool log_has(const char *text)
{
	int log = open_or_die("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	char line[8192];
	bool found = false;
	ssize_t n;

	while (!found && ((n = read(log, line, sizeof(line) - 1)) > 0 || errno == EPIPE)) {
		line[n > 0 ? n : 0] = 0;	/* EPIPE: the oldest ones were overwritten meanwhile */
		found = strstr(line, text);
	}
	close(log);
	return found;
}

static bool is_btrfs(int fd)
{
	struct statfs filesystem;

	return !fstatfs(fd, &filesystem) && filesystem.f_type == BTRFS_SUPER_MAGIC;
}

static bool kernel_before(int major, int minor)
{
	struct utsname name;
	int running[2] = { 0 };

	if (uname(&name) || sscanf(name.release, "%d.%d", &running[0], &running[1]) != 2)
		die("uname");
	return running[0] < major || (running[0] == major && running[1] < minor);
}

void sync_file(int fd)
{
	int error;

	if (!fsync(fd))
		return;
	error = errno;
	if (error == EIO && is_btrfs(fd) && kernel_before(6, 12) &&
	    log_has("Page cache invalidation failure on direct I/O")) {
		__sync_fetch_and_add(&collided, 1);
		return;
	}
	errno = error;
	io_failed("fsync");
}

unsigned long collisions(void)
{
	return collided;
}

void die(const char *what)
{
	printf("stress: %s: %s\n", what, strerror(errno));
	exit(2);
}

int verdict(void)
{
	if (wrong_pages())
		return 1;
	return errors ? 2 : 0;
}

static int latency_bucket(double us)
{
	int bucket = us <= 1 ? 0 : (int)(log2(us) * 16);

	return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

void latency_add(struct latency *latency, double seconds)
{
	pthread_mutex_lock(&latency_lock);
	latency->bucket[latency_bucket(seconds * 1e6)]++;
	latency->count++;
	latency->sum += seconds;
	latency->squares += seconds * seconds;
	if (seconds > latency->max)
		latency->max = seconds;
	pthread_mutex_unlock(&latency_lock);
}

double latency_quantile_us(const struct latency *latency, double quantile)
{
	double left = quantile * latency->count;
	int bucket = 0;

	while (bucket < LATENCY_BUCKETS - 1 && (left -= latency->bucket[bucket]) > 0)
		bucket++;
	return exp2((bucket + 1) / 16.0);
}

void latency_print(const struct latency *latency)
{
	double count = latency->count ? latency->count : 1, mean = latency->sum / count;
	double variance = latency->squares / count - mean * mean;

	printf("\"p50_us\": %.0f, \"p99_us\": %.0f, \"mean_us\": %.1f, \"deviation_us\": %.1f, \"max_us\": %.0f",
	       latency_quantile_us(latency, 0.5), latency_quantile_us(latency, 0.99),
	       mean * 1e6, variance > 0 ? sqrt(variance) * 1e6 : 0, latency->max * 1e6);
}

int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags, 0644);

	if (fd < 0)
		die(path);
	return fd;
}

void run_threads(long count, void *(*body)(void *))
{
	pthread_t thread[MAX_THREADS];

	if (count < 1 || count > MAX_THREADS) {
		errno = EINVAL;
		die("threads");
	}
	for (long i = 0; i < count; i++)
		if (pthread_create(&thread[i], NULL, body, (void *)i))
			die("thread");
	for (long i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
}
