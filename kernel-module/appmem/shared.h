/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages that small values share: shared.c. */
#ifndef TIDE_APP_SHARED_H
#define TIDE_APP_SHARED_H

#include <linux/list.h>
#include <linux/mm.h>
#include <linux/types.h>

#include "appmem/spill.h"

struct tide_app_pool;
struct tide_value;

#define TIDE_SMALL_MAX	(PAGE_SIZE / 2)		/* bytes of a value that shares a page */

/**
 * struct tide_shared - a page of small values
 * @list: in pool->shared, unless it is pool->open
 * @values: that are in it and still there
 * @index: of the page
 * @spilled: where it is in the pool's spill file, if that has one
 * @page: its bytes, until a lender has them, or that file
 * @used: bytes that were added
 * @live: of those, of @values
 * @full: goes to the spill file: nothing is added any more, nor does @page change
 * @held: somebody empties it, and frees it
 *
 * All under the pool's lock.
 */
struct tide_shared {
	struct list_head list, values;
	u64 index;
	struct tide_spilled spilled;
	struct page *page;
	unsigned int used, live;
	bool full, held;
};

int tide_shared_add(struct tide_app_pool *pool, struct tide_value *value, const void *data,
		    bool moves);
int tide_shared_write(struct tide_app_pool *pool);
void tide_shared_remove(struct tide_app_pool *pool, struct tide_value *value);
void tide_shared_drop(struct tide_app_pool *pool, struct tide_shared *shared);
void tide_shared_end(struct tide_app_pool *pool);

#endif /* TIDE_APP_SHARED_H */
