/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hit ratios that pools of several sizes would have: arithmetic only, so
 * that the tests can compile it for user space.
 */
#ifndef TIDE_CURVE_H
#define TIDE_CURVE_H

#include <linux/math64.h>
#include <linux/string.h>
#include <linux/types.h>

#define TIDE_CURVE_SIZES	7	/* 1/8, 1/4, 1/2, 1, 2, 4, 8 times the memory */
#define TIDE_CURVE_ENTRIES	32768	/* pages followed at most */
#define TIDE_CURVE_BUCKETS	32768
#define TIDE_CURVE_BLOCK	16	/* pages that are passed over together */
#define TIDE_CURVE_CHOSEN	4

/* A page that is followed; entries name each other by number. */
struct tide_curve_entry {
	u64 super, file, index;
	u16 next_page;			/* in its bucket, or the next free one */
	u16 next_file, previous_file;	/* in its file's bucket */
	u8 in;				/* bit i: pool i has it */
	struct {
		u16 newer, older;
	} at[TIDE_CURVE_SIZES];		/* its neighbours in each pool */
};

struct tide_curve_pool {
	u16 newest, oldest;
	u32 count, limit;
	u32 hits;			/* since long ago, fading */
};

/**
 * struct tide_curve - pools of several sizes, each at a fraction of its size
 * @exclusive: a page that is read back leaves the pool
 * @threshold: a page of a chosen block is followed when its hash is below this
 * (of 1 << 32)
 * @memory: pages of the guest's memory
 * @references: reads of pages that are followed, fading as the hits do
 * @references_ever: the same, not fading
 * @count: pages followed now
 * @unused: first entry that is not used
 * @pool: the pools, smallest first
 * @by_page: buckets of @entry
 * @by_file: the same entries by file
 * @entry: the pages followed
 */
struct tide_curve {
	bool exclusive;
	u32 threshold;
	u64 memory;
	u32 references;
	u64 references_ever;
	u32 count;
	u16 unused;
	struct tide_curve_pool pool[TIDE_CURVE_SIZES];
	u16 by_page[TIDE_CURVE_BUCKETS];
	u16 by_file[TIDE_CURVE_BUCKETS];
	struct tide_curve_entry entry[TIDE_CURVE_ENTRIES];
};

void tide_curve_init(struct tide_curve *curve, u64 memory, bool exclusive);
u64 tide_curve_hash(u64 a, u64 b);
void tide_curve_get(struct tide_curve *curve, u64 file, u64 index);
void tide_curve_put(struct tide_curve *curve, u64 super, u64 file, u64 index);
void tide_curve_drop(struct tide_curve *curve, u64 file, u64 index);
void tide_curve_drop_range(struct tide_curve *curve, u64 file, u64 first, u64 last);
void tide_curve_drop_super(struct tide_curve *curve, u64 super);
u64 tide_curve_pages(const struct tide_curve *curve, unsigned int size);
u32 tide_curve_ratio(const struct tide_curve *curve, unsigned int size);

static inline u64 tide_curve_mix(u64 x)
{
	x *= 0xff51afd7ed558ccdULL;
	return (x ^ x >> 32) * 0xc4ceb9fe1a85ec53ULL;
}

/* Of the blocks of a file one in TIDE_CURVE_CHOSEN has pages that are followed. */
static inline u64 tide_curve_block(u64 ino, u64 index)
{
	return (ino << 32 ^ index / TIDE_CURVE_BLOCK) * 0x9e3779b97f4a7c15ULL;
}

static inline bool tide_curve_chosen(u64 block)
{
	return block >> 32 < (1ULL << 32) / TIDE_CURVE_CHOSEN;
}

/**
 * tide_curve_follows() - is a page among those that are followed?
 * @threshold: of the curve
 * @ino: number of its file; files of the same number share what is followed
 * @index: of the page
 *
 * The answer is always the same (SHARDS). It is given for every page that comes
 * or goes, before anything else is looked at, so it has to be cheap.
 */
static inline bool tide_curve_follows(u32 threshold, u64 ino, u64 index)
{
	u64 block = tide_curve_block(ino, index);

	return tide_curve_chosen(block) &&
	       tide_curve_mix(block + index % TIDE_CURVE_BLOCK) >> 32 < threshold;
}

/**
 * tide_curve_next() - the first page from one on that is followed
 * @threshold: of the curve
 * @ino: number of its file
 * @index: of the page to begin with
 * @end: and of the one before which to end
 *
 * Return: its index, or @end.
 */
static inline u64 tide_curve_next(u32 threshold, u64 ino, u64 index, u64 end)
{
	for (; index < end; index++) {
		if (!tide_curve_chosen(tide_curve_block(ino, index)))
			index |= TIDE_CURVE_BLOCK - 1;
		else if (tide_curve_follows(threshold, ino, index))
			return index;
	}
	return end;
}

#endif /* TIDE_CURVE_H */
