// SPDX-License-Identifier: GPL-2.0
/*
 * missratio.c against pools that are simulated page by page, without sampling.
 *
 *	curve TRACE exclusive=0|1 [drops=N]
 *
 * A trace of reads goes through the page cache of a small guest (LRU). What
 * misses there is a get, what is evicted is a put; both go to missratio.c and to the
 * exact simulation. With drops=N every Nth read is followed by a direct write of
 * 64 pages somewhere, which drops them everywhere.
 * misses there is a get, what is evicted is a put; both go to missratio.c and the
 * The exact NonInclusive pool is a queue for each size. The exact Exclusive pool
 * is an LRU stack: it has what the stack has behind the page cache's pages, so
 * a read hits a pool of C pages when its stack distance is below memory + C.
 *
 *	curve fuzz [seed=N]
 *
 * Random calls, and the lists and buckets are looked at in between.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/missratio.h"

#define MEMORY	32768u			/* pages of the guest's page cache */
#define PAGES	(16u * MEMORY)		/* that traces may name */
#define READS	3000000u
#define WARM	(READS * 3 / 4)		/* hits are counted after this */
#define WRITE	64u			/* pages of a direct write */
#define NONE	UINT32_MAX

static struct tide_curve curve;
static u64 state = 88172645463325252ULL;

static u32 draw(u32 below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % below;
}

static double draw_real(void)
{
	return (draw(1u << 30) + 1) / (double)(1u << 30);
}

static long option(char **argv, const char *name, long otherwise)
{
	size_t length = strlen(name);

	for (; *argv; argv++)
		if (!strncmp(*argv, name, length) && (*argv)[length] == '=')
			return strtol(*argv + length + 1, NULL, 0);
	return otherwise;
}

static void fail(const char *why)
{
	printf("failed: %s\n", why);
	exit(1);
}

/* ---- traces ---- */

static u32 uniform(u32 i)
{
	(void)i;
	return draw(4 * MEMORY);
}

static u32 loop(u32 i)
{
	return i % (MEMORY * 27 / 10);	/* not at the edge of a size */
}

/* Half of the reads go to a small loop, half to a large random set. */
static u32 mixed(u32 i)
{
	return i & 1 ? i / 2 % (MEMORY * 3 / 2) : 2 * MEMORY + draw(6 * MEMORY);
}

/* Ranks by their popularity 1/rank^0.8, and each rank somewhere in the file. */
static u32 zipf(u32 i)
{
	const double s = 0.2;		/* 1 - 0.8 */
	u32 rank = pow(draw_real() * (pow(PAGES, s) - 1) + 1, 1 / s) - 1;

	(void)i;
	return (u64)rank * 2654435761u % PAGES;
}

/* A loop that fits into a small pool, then one that only a large one holds. */
static u32 shift(u32 i)
{
	return i < READS / 2 ? i % (MEMORY * 5 / 4) : 2 * MEMORY + i % (MEMORY * 45 / 10);
}

static const struct {
	const char *name;
	u32 (*next)(u32 i);
} traces[] = {
	{ "uniform", uniform }, { "loop", loop }, { "mixed", mixed }, { "zipf", zipf }, { "shift", shift },
};

/* ---- the page cache: LRU ---- */

static u32 older[PAGES], newer[PAGES], newest = NONE, oldest = NONE, cached;
static bool resident[PAGES];

static void cache_remove(u32 page)
{
	if (newer[page] == NONE)
		newest = older[page];
	else
		older[newer[page]] = older[page];
	if (older[page] == NONE)
		oldest = newer[page];
	else
		newer[older[page]] = newer[page];
	resident[page] = false;
	cached--;
}

static void cache_add(u32 page)
{
	older[page] = newest;
	newer[page] = NONE;
	if (newest == NONE)
		oldest = page;
	else
		newer[newest] = page;
	newest = page;
	resident[page] = true;
	cached++;
}

/* ---- exact pools, NonInclusive: queues ---- */

static struct {
	u32 *queue, head, tail, count, limit;
	u32 *where;			/* of a page in the queue, or NONE */
	u64 hits;
} pools[TIDE_CURVE_SIZES];

static void pools_init(void)
{
	for (int i = 0; i < TIDE_CURVE_SIZES; i++) {
		pools[i].limit = (MEMORY << i) / 8;
		pools[i].queue = malloc((READS + PAGES) * sizeof(u32));
		pools[i].where = malloc(PAGES * sizeof(u32));
		memset(pools[i].where, 0xff, PAGES * sizeof(u32));
	}
}

static void pool_drop(int i, u32 page)
{
	if (pools[i].where[page] == NONE)
		return;
	pools[i].queue[pools[i].where[page]] = NONE;
	pools[i].where[page] = NONE;
	pools[i].count--;
}

static void pool_put(int i, u32 page)
{
	if (pools[i].where[page] != NONE)
		return;
	pools[i].where[page] = pools[i].head;
	pools[i].queue[pools[i].head++] = page;
	pools[i].count++;
	while (pools[i].count > pools[i].limit) {
		u32 out = pools[i].queue[pools[i].tail++];

		if (out != NONE)
			pool_drop(i, out);
	}
}

/* ---- exact pools, Exclusive: distances in an LRU stack ---- */

static u32 tree[READS + 1], last_read[PAGES];	/* Fenwick tree over time; 0: never */

static void tree_add(u32 at, int n)
{
	for (; at <= READS; at += at & -at)
		tree[at] += n;
}

static u32 tree_sum(u32 at)
{
	u32 sum = 0;

	for (; at; at -= at & -at)
		sum += tree[at];
	return sum;
}

/* Pages read since this one was, or NONE. */
static u32 stack_distance(u32 page, u32 now)
{
	return last_read[page] ? tree_sum(now - 1) - tree_sum(last_read[page]) : NONE;
}

static void stack_drop(u32 page)
{
	if (last_read[page])
		tree_add(last_read[page], -1);
	last_read[page] = 0;
}

/* ---- everything together ---- */

static double cpu_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void evict(u32 page, bool exclusive)
{
	if (tide_curve_follows(curve.threshold, 1, page))
		tide_curve_put(&curve, 1, 1, page);
	for (int i = 0; !exclusive && i < TIDE_CURVE_SIZES; i++)
		pool_put(i, page);
}

static void drop(u32 page)
{
	if (resident[page])
		cache_remove(page);
	if (tide_curve_follows(curve.threshold, 1, page))
		tide_curve_drop(&curve, 1, page);
	stack_drop(page);
	for (int i = 0; i < TIDE_CURVE_SIZES; i++)
		pool_drop(i, page);
}

static u64 misses;

static void read_page(u32 page, u32 now, bool exclusive)
{
	u32 distance = exclusive ? stack_distance(page, now) : 0;

	if (exclusive) {
		stack_drop(page);
		last_read[page] = now;
		tree_add(now, 1);
	}
	if (resident[page]) {
		cache_remove(page);
		cache_add(page);
		return;
	}
	misses += now > WARM;
	for (int i = 0; now > WARM && i < TIDE_CURVE_SIZES; i++)
		pools[i].hits += exclusive ? distance != NONE && distance < MEMORY + pools[i].limit :
					     pools[i].where[page] != NONE;
	if (tide_curve_follows(curve.threshold, 1, page))
		tide_curve_get(&curve, 1, page);
	cache_add(page);
	if (cached > MEMORY) {
		u32 out = oldest;

		cache_remove(out);
		evict(out, exclusive);
	}
}

/* The cost of a read that misses, followed or not, on average: its get and its put. */
static double nanoseconds(void)
{
	double start = cpu_seconds();

	for (u32 i = 0; i < READS; i++) {
		u32 get = draw(PAGES), put = draw(PAGES);

		if (tide_curve_follows(curve.threshold, 1, get))
			tide_curve_get(&curve, 1, get);
		if (tide_curve_follows(curve.threshold, 1, put))
			tide_curve_put(&curve, 1, 1, put);
	}
	return (cpu_seconds() - start) / READS * 1e9;
}

static int run(u32 (*next)(u32 i), bool exclusive, u32 drops)
{
	pools_init();
	tide_curve_init(&curve, MEMORY, exclusive);
	for (u32 now = 1; now <= READS; now++) {
		read_page(next(now - 1), now, exclusive);
		if (drops && now % drops == 0) {
			u32 first = draw(PAGES / WRITE) * WRITE;

			for (u32 page = first; page < first + WRITE; page++)
				drop(page);
		}
	}
	printf("{\"predicted\": [");
	for (int i = 0; i < TIDE_CURVE_SIZES; i++)
		printf("%s%.4f", i ? ", " : "", tide_curve_ratio(&curve, i) / 1e4);
	printf("], \"exact\": [");
	for (int i = 0; i < TIDE_CURVE_SIZES; i++)
		printf("%s%.4f", i ? ", " : "", pools[i].hits / (double)misses);
	printf("], \"entries\": %u, \"bytes\": %zu, ", curve.count, sizeof(curve));
	printf("\"rate\": %.4f, \"ns\": %.1f}\n", curve.threshold / 4294967296.0 / TIDE_CURVE_BLOCK, nanoseconds());
	return 0;
}

/* ---- fuzz ---- */

static void check_pool(unsigned int size)
{
	const struct tide_curve_pool *pool = &curve.pool[size];
	u32 count = 0;
	u16 previous = 0xffff;

	for (u16 e = pool->newest; e != 0xffff; e = curve.entry[e].at[size].older) {
		if (!(curve.entry[e].in & 1 << size) || curve.entry[e].at[size].newer != previous)
			fail("a pool's list is broken");
		previous = e;
		if (++count > pool->count)
			fail("a pool's list is too long");
	}
	if (count != pool->count || count > pool->limit || pool->oldest != previous)
		fail("a pool's count is wrong");
}

static void check(void)
{
	u32 by_page = 0, by_file = 0, unused = 0;

	for (u32 b = 0; b < TIDE_CURVE_BUCKETS; b++) {
		for (u16 e = curve.by_page[b]; e != 0xffff; e = curve.entry[e].next_page)
			by_page += !!curve.entry[e].in;
		for (u16 e = curve.by_file[b]; e != 0xffff; e = curve.entry[e].next_file)
			by_file += !!curve.entry[e].in;
	}
	for (u16 e = curve.unused; e != 0xffff; e = curve.entry[e].next_page)
		unused++;
	if (by_page != curve.count || by_file != curve.count || unused != TIDE_CURVE_ENTRIES - curve.count)
		fail("entries are lost");
	for (unsigned int size = 0; size < TIDE_CURVE_SIZES; size++)
		check_pool(size);
}

static void fuzz_call(u64 memory, u32 i)
{
	u64 file = 1 + draw(3), index = draw(memory * 12);

	if (tide_curve_follows(curve.threshold, file, index)) {
		if (i % 3)
			tide_curve_put(&curve, file / 2, file, index);
		else
			tide_curve_get(&curve, file, index);
	}
	if (!draw(10))
		tide_curve_drop(&curve, file, index);
	if (!draw(200000))
		tide_curve_drop_range(&curve, file, index, index + draw(memory));
	if (!draw(400000))
		tide_curve_drop_super(&curve, file / 2);
}

static int fuzz(void)
{
	static const u64 memories[] = { 1, 7, 3000, 4096, 300000 };

	for (int round = 0; round < 10; round++) {
		u64 memory = memories[round / 2];

		tide_curve_init(&curve, memory, round & 1);
		for (u32 i = 0; i < 600000; i++) {
			fuzz_call(memory, i);
			if (i % 50000 == 0)
				check();
		}
		check();
	}
	tide_curve_drop_super(&curve, 0);
	tide_curve_drop_super(&curve, 1);
	check();
	if (curve.count)
		fail("a file system's pages outlive it");
	printf("{\"entries\": %u}\n", curve.count);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "fuzz"))
		return fuzz();
	for (size_t i = 0; argc > 1 && i < sizeof(traces) / sizeof(traces[0]); i++)
		if (!strcmp(argv[1], traces[i].name))
			return run(traces[i].next, option(argv, "exclusive", 0), option(argv, "drops", 0));
	fail("which trace?");
}
