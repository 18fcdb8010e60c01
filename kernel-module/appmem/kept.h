/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages of pools of both kinds; those of a kept one are never with a lender alone: kept.c. */
#ifndef TIDE_APP_KEPT_H
#define TIDE_APP_KEPT_H

#include <linux/types.h>

struct page;
struct tide_app_pool;
struct tide_spilled;

int tide_kept_write(struct tide_app_pool *pool, u64 index, struct tide_spilled *spilled,
		    const void __user *from, size_t size);
int tide_pool_read(struct tide_app_pool *pool, u64 index, const struct tide_spilled *spilled,
		   unsigned int count, struct page ***pages);

#endif /* TIDE_APP_KEPT_H */
