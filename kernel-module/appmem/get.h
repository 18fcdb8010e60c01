/* SPDX-License-Identifier: GPL-2.0-only */
/* Gets of values: get.c. */
#ifndef TIDE_APP_GET_H
#define TIDE_APP_GET_H

#include <linux/ktime.h>
#include <linux/types.h>

#include "appmem/kept.h"
#include "appmem/spill.h"
#include "appmem/value.h"

struct tide_app_pool;

/**
 * struct tide_found - where a value was when a key was looked up
 * @index: of its first page
 * @spilled: where that is in the pool's spill file
 * @offset: in the page
 * @size: in bytes
 * @data: its bytes, if they were in memory, to be freed
 * @near: its pages, if they were, to be freed likewise
 * @often: if not, they are worth to be there from now on
 */
struct tide_found {
	u64 index;
	struct tide_spilled spilled;
	u32 offset, size;
	void *data;
	struct page **near;
	bool often;
};

/**
 * struct tide_want - a get, from tide_want_begin() to tide_want_end() or tide_want_drop()
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 * @to: where the value goes
 * @room: of that in bytes
 * @waits: for lenders
 * @found: what the key stood for
 * @asked: its pages, if they are asked for
 * @err: why there is nothing to end: 0 or a negative errno
 */
struct tide_want {
	struct tide_key key;
	void __user *to;
	u32 room;
	bool waits;
	struct tide_found found;
	struct tide_asked asked;
	int err;
};

void tide_want_begin(struct tide_app_pool *pool, struct tide_want *want);
int tide_want_end(struct tide_app_pool *pool, struct tide_want *want, ktime_t until);
void tide_want_drop(struct tide_want *want);
unsigned int tide_want_pages(const struct tide_want *want);

#endif /* TIDE_APP_GET_H */
