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
#define TIDE_CURVE_ENTRIES	16384	/* pages followed at most */
#define TIDE_CURVE_BUCKETS	16384
#define TIDE_CURVE_BLOCK	8	/* pages of which one is followed at most */

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
 * @threshold: a page of a block is followed when the block's hash is below this
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

/*
 * This is asked for every page that comes or goes, before anything else, and
 * mostly answered no, so it has to be cheap. Multiples of the golden ratio are
 * spread evenly: those of the blocks of a file, and those of the first blocks of
 * consecutive files.
 */
static inline u32 tide_curve_block_hash(u64 ino, u64 index)
{
	return (u32)(ino + index / TIDE_CURVE_BLOCK) * 0x9e3779b1U;
}

/* Has the block of a page one that is followed? */
static inline bool tide_curve_chosen(u32 threshold, u64 ino, u64 index)
{
	return tide_curve_block_hash(ino, index) < threshold;
}

/* Which one? */
static inline u64 tide_curve_page_of_block(u64 ino, u64 index)
{
	u64 x = tide_curve_block_hash(ino, index) * 0xff51afd7ed558ccdULL;

	return index - index % TIDE_CURVE_BLOCK + (x ^ x >> 32) % TIDE_CURVE_BLOCK;
}

/**
 * tide_curve_follows() - is a page among those that are followed?
 * @threshold: of the curve
 * @ino: number of its file; files of the same number share what is followed
 * @index: of the page
 *
 * The answer is always the same (SHARDS).
 */
static inline bool tide_curve_follows(u32 threshold, u64 ino, u64 index)
{
	return tide_curve_chosen(threshold, ino, index) &&
	       tide_curve_page_of_block(ino, index) == index;
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
	for (; index < end; index = (index | (TIDE_CURVE_BLOCK - 1)) + 1) {
		if (tide_curve_chosen(threshold, ino, index)) {
			u64 page = tide_curve_page_of_block(ino, index);

			if (page >= index)
				return page < end ? page : end;
		}
	}
	return end;
}

#endif /* TIDE_CURVE_H */
