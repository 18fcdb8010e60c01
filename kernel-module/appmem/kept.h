/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages of pools of both kinds; those of a kept one are never with a lender alone: kept.c. */
#ifndef TIDE_APP_KEPT_H
#define TIDE_APP_KEPT_H

#include <linux/ktime.h>
#include <linux/types.h>

struct page;
struct tide_app_pool;
struct tide_app_read;
struct tide_spilled;

/**
 * struct tide_asked - pages that were asked for
 * @pages: if they were in memory, for tide_app_pages_free()
 * @read: else what lenders are to send
 */
struct tide_asked {
	struct page **pages;
	struct tide_app_read *read;
};

int tide_kept_write(struct tide_app_pool *pool, u64 index, struct tide_spilled *spilled,
		    const void __user *from, size_t size);
int tide_pool_ask(struct tide_app_pool *pool, u64 index, const struct tide_spilled *spilled,
		  unsigned int count, struct tide_asked *asked, bool waits);
int tide_pool_await(struct tide_app_pool *pool, const struct tide_spilled *spilled,
		    unsigned int count, struct tide_asked *asked, ktime_t until,
		    struct page ***pages);
int tide_pool_read(struct tide_app_pool *pool, u64 index, const struct tide_spilled *spilled,
		   unsigned int count, struct page ***pages);

#endif /* TIDE_APP_KEPT_H */
