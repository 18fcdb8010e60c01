/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages of values that are read often, in the guest's own memory: front.c. */
#ifndef TIDE_APP_FRONT_H
#define TIDE_APP_FRONT_H

#include <linux/types.h>
#include <linux/xarray.h>

struct page;

/**
 * struct tide_front - pages of one pool that are here
 * @pages: by index
 * @count: of them
 */
struct tide_front {
	struct xarray pages;
	unsigned long count;
};

bool tide_front_seen(u32 *seen, unsigned int count);
bool tide_front_get(struct tide_front *front, u64 first, struct page **pages, unsigned int count);
void tide_front_add(struct tide_front *front, u64 first, struct page **pages, unsigned int count);
void tide_front_drop(struct tide_front *front, u64 first, unsigned int count);
void tide_front_end(struct tide_front *front);
u64 tide_front_bytes_of(const struct tide_front *front);
u64 tide_front_bytes(void);
int tide_front_init(void);
void tide_front_exit(void);

#endif /* TIDE_APP_FRONT_H */
