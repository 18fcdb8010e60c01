// SPDX-License-Identifier: GPL-2.0-only
/*
 * What hit ratio would pools of 1/8 to 8 times the guest's memory have?
 *
 * The sampling is that of SHARDS: a page is followed if the hash of its block is
 * below a threshold, and that hash says which page of the block it is. So a page
 * is followed always or never, most are passed over with a glance, and the reuse
 * distances among the followed pages are those among all pages times the
 * sampling rate. A
 * pool of C pages has a page exactly while its distance is below C, so what is
 * kept is not the distances but the pools themselves, each at the rate's
 * fraction of its size, in the order in which the lender recycles. That needs no
 * order statistics, and it is right for both strategies, of which NonInclusive
 * (first in, first out) has no distances that would hold for every size.
 *
 * The rate follows from the guest's memory so that the largest pool fits into
 * the entries that there are. Counts are halved now and then, so that the
 * curve follows the workload.
 */
#include "base/missratio.h"

#define TIDE_CURVE_NONE		0xffff
#define TIDE_CURVE_LARGEST	(TIDE_CURVE_SIZES - 1)
#define TIDE_CURVE_ALL		((1 << TIDE_CURVE_SIZES) - 1)
#define TIDE_CURVE_FADE		4096	/* references after which counts are halved */

/* ------------------------------------------------------------------ */
/* entries							       */
/* ------------------------------------------------------------------ */

/**
 * tide_curve_hash() - a hash of two numbers
 * @a: any
 * @b: any
 */
u64 tide_curve_hash(u64 a, u64 b)
{
	u64 x = a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));

	x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

static u16 *tide_curve_page_bucket(struct tide_curve *curve, u64 file, u64 index)
{
	return &curve->by_page[tide_curve_hash(file, index) % TIDE_CURVE_BUCKETS];
}

static u16 *tide_curve_file_bucket(struct tide_curve *curve, u64 file)
{
	return &curve->by_file[file % TIDE_CURVE_BUCKETS];
}

static u16 tide_curve_find(struct tide_curve *curve, u64 file, u64 index)
{
	u16 e = *tide_curve_page_bucket(curve, file, index);

	while (e != TIDE_CURVE_NONE &&
	       (curve->entry[e].file != file || curve->entry[e].index != index))
		e = curve->entry[e].next_page;
	return e;
}

static void tide_curve_free(struct tide_curve *curve, u16 e)
{
	struct tide_curve_entry *entry = &curve->entry[e];
	u16 *at = tide_curve_page_bucket(curve, entry->file, entry->index);

	while (*at != e)
		at = &curve->entry[*at].next_page;
	*at = entry->next_page;

	if (entry->previous_file == TIDE_CURVE_NONE)
		*tide_curve_file_bucket(curve, entry->file) = entry->next_file;
	else
		curve->entry[entry->previous_file].next_file = entry->next_file;
	if (entry->next_file != TIDE_CURVE_NONE)
		curve->entry[entry->next_file].previous_file = entry->previous_file;

	entry->next_page = curve->unused;
	curve->unused = e;
	curve->count--;
}

/* ------------------------------------------------------------------ */
/* pools							       */
/* ------------------------------------------------------------------ */

/* Takes an entry out of a pool; one that is in none is not freed. */
static void tide_curve_remove(struct tide_curve *curve, unsigned int size, u16 e)
{
	struct tide_curve_pool *pool = &curve->pool[size];
	struct tide_curve_entry *entry = &curve->entry[e];
	u16 newer = entry->at[size].newer, older = entry->at[size].older;

	if (!(entry->in & 1 << size))
		return;
	if (newer == TIDE_CURVE_NONE)
		pool->newest = older;
	else
		curve->entry[newer].at[size].older = older;
	if (older == TIDE_CURVE_NONE)
		pool->oldest = newer;
	else
		curve->entry[older].at[size].newer = newer;
	entry->in &= ~(1 << size);
	pool->count--;
}

static void tide_curve_add(struct tide_curve *curve, unsigned int size, u16 e)
{
	struct tide_curve_pool *pool = &curve->pool[size];
	struct tide_curve_entry *entry = &curve->entry[e];

	entry->at[size].newer = TIDE_CURVE_NONE;
	entry->at[size].older = pool->newest;
	if (pool->newest == TIDE_CURVE_NONE)
		pool->oldest = e;
	else
		curve->entry[pool->newest].at[size].newer = e;
	pool->newest = e;
	entry->in |= 1 << size;
	pool->count++;
}

static void tide_curve_forget(struct tide_curve *curve, u16 e)
{
	unsigned int size;

	for (size = 0; size < TIDE_CURVE_SIZES; size++)
		tide_curve_remove(curve, size, e);
	tide_curve_free(curve, e);
}

static void tide_curve_recycle(struct tide_curve *curve, unsigned int size)
{
	u16 oldest = curve->pool[size].oldest;

	tide_curve_remove(curve, size, oldest);
	if (!curve->entry[oldest].in)
		tide_curve_free(curve, oldest);
}

/*
 * The largest pool is not empty when the entries are used up: the others
 * together are smaller than it, and it takes three quarters of the entries.
 */
static u16 tide_curve_alloc(struct tide_curve *curve, u64 super, u64 file, u64 index)
{
	struct tide_curve_entry *entry;
	u16 *page, *first, e;

	if (curve->unused == TIDE_CURVE_NONE)
		tide_curve_forget(curve, curve->pool[TIDE_CURVE_LARGEST].oldest);
	page = tide_curve_page_bucket(curve, file, index);
	first = tide_curve_file_bucket(curve, file);
	e = curve->unused;
	entry = &curve->entry[e];
	curve->unused = entry->next_page;
	curve->count++;

	entry->super = super;
	entry->file = file;
	entry->index = index;
	entry->in = 0;
	entry->next_page = *page;
	*page = e;
	entry->previous_file = TIDE_CURVE_NONE;
	entry->next_file = *first;
	if (*first != TIDE_CURVE_NONE)
		curve->entry[*first].previous_file = e;
	*first = e;
	return e;
}

/* ------------------------------------------------------------------ */
/* what happens to pages that are followed			       */
/* ------------------------------------------------------------------ */

/**
 * tide_curve_init() - begin with empty pools
 * @curve: where to
 * @memory: pages of the guest's memory
 * @exclusive: a page that is read back leaves the pool
 */
void tide_curve_init(struct tide_curve *curve, u64 memory, bool exclusive)
{
	unsigned int i;
	u64 share;

	memset(curve, 0, sizeof(*curve));
	memset(curve->by_page, 0xff, sizeof(curve->by_page));
	memset(curve->by_file, 0xff, sizeof(curve->by_file));
	curve->exclusive = exclusive;
	curve->memory = memory;
	/* A quarter of the entries is for pages that only smaller pools have. */
	share = div64_u64((TIDE_CURVE_ENTRIES * 3ULL / 4 * TIDE_CURVE_BLOCK) << 32,
			  memory * 8);
	curve->threshold = share < ~0U ? share : ~0U;
	for (i = 0; i < TIDE_CURVE_ENTRIES; i++)
		curve->entry[i].next_page = i + 1 < TIDE_CURVE_ENTRIES ? i + 1 :
								 TIDE_CURVE_NONE;
	for (i = 0; i < TIDE_CURVE_SIZES; i++) {
		u64 limit = (tide_curve_pages(curve, i) * curve->threshold /
			     TIDE_CURVE_BLOCK) >> 32;

		curve->pool[i].newest = TIDE_CURVE_NONE;
		curve->pool[i].oldest = TIDE_CURVE_NONE;
		curve->pool[i].limit = limit ? limit : 1;
	}
}

/**
 * tide_curve_get() - a page is read that is not in the guest's page cache
 * @curve: the pools
 * @file: a hash of the file's name
 * @index: of a page that is followed
 */
void tide_curve_get(struct tide_curve *curve, u64 file, u64 index)
{
	u16 e = tide_curve_find(curve, file, index);
	unsigned int i;

	if (curve->references >= TIDE_CURVE_FADE) {
		curve->references /= 2;
		for (i = 0; i < TIDE_CURVE_SIZES; i++)
			curve->pool[i].hits /= 2;
	}
	curve->references++;
	curve->references_ever++;
	if (e == TIDE_CURVE_NONE)
		return;
	for (i = 0; i < TIDE_CURVE_SIZES; i++)
		curve->pool[i].hits += curve->entry[e].in >> i & 1;
	if (curve->exclusive)
		tide_curve_forget(curve, e);
}

/**
 * tide_curve_put() - a clean page leaves the guest's page cache
 * @curve: the pools
 * @super: a name of the file system
 * @file: a hash of the file's name
 * @index: of a page that is followed
 */
void tide_curve_put(struct tide_curve *curve, u64 super, u64 file, u64 index)
{
	u16 e = tide_curve_find(curve, file, index);
	unsigned int i;

	if (e == TIDE_CURVE_NONE)
		e = tide_curve_alloc(curve, super, file, index);
	if (curve->entry[e].in == TIDE_CURVE_ALL)
		return;
	for (i = 0; i < TIDE_CURVE_SIZES; i++) {
		if (curve->entry[e].in & 1 << i)
			continue;	/* there already, and not changed since */
		tide_curve_add(curve, i, e);
		if (curve->pool[i].count > curve->pool[i].limit)
			tide_curve_recycle(curve, i);
	}
}

/**
 * tide_curve_drop() - a page has changed
 * @curve: the pools
 * @file: a hash of the file's name
 * @index: of a page that is followed
 */
void tide_curve_drop(struct tide_curve *curve, u64 file, u64 index)
{
	u16 e = tide_curve_find(curve, file, index);

	if (e != TIDE_CURVE_NONE)
		tide_curve_forget(curve, e);
}

/**
 * tide_curve_drop_range() - many pages of a file have changed
 * @curve: the pools
 * @file: a hash of the file's name
 * @first: first page index
 * @last: last page index, inclusive
 */
void tide_curve_drop_range(struct tide_curve *curve, u64 file, u64 first, u64 last)
{
	u16 e = *tide_curve_file_bucket(curve, file), next;

	for (; e != TIDE_CURVE_NONE; e = next) {
		const struct tide_curve_entry *entry = &curve->entry[e];

		next = entry->next_file;
		if (entry->file == file && entry->index >= first && entry->index <= last)
			tide_curve_forget(curve, e);
	}
}

/**
 * tide_curve_drop_super() - a file system is unmounted
 * @curve: the pools
 * @super: its name
 */
void tide_curve_drop_super(struct tide_curve *curve, u64 super)
{
	unsigned int bucket;
	u16 e, next;

	for (bucket = 0; bucket < TIDE_CURVE_BUCKETS; bucket++) {
		for (e = curve->by_file[bucket]; e != TIDE_CURVE_NONE; e = next) {
			next = curve->entry[e].next_file;
			if (curve->entry[e].super == super)
				tide_curve_forget(curve, e);
		}
	}
}

/* ------------------------------------------------------------------ */
/* the curve							       */
/* ------------------------------------------------------------------ */

/**
 * tide_curve_pages() - how large is a pool?
 * @curve: the pools
 * @size: 0 for the smallest
 *
 * Return: its pages, as if every page were followed.
 */
u64 tide_curve_pages(const struct tide_curve *curve, unsigned int size)
{
	return (curve->memory << size) >> 3;
}

/**
 * tide_curve_ratio() - which part of the reads would find its page in a pool?
 * @curve: the pools
 * @size: 0 for the smallest
 *
 * Return: hits in 10000 reads; 0 when nothing was read.
 */
u32 tide_curve_ratio(const struct tide_curve *curve, unsigned int size)
{
	return curve->references ?
	       curve->pool[size].hits * 10000 / curve->references : 0;
}
