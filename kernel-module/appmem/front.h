/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages of values that are read often, in the guest's own memory: front.c. */
#ifndef TIDE_APP_FRONT_H
#define TIDE_APP_FRONT_H

#include <linux/types.h>

struct page;
struct xarray;

bool tide_front_seen(u32 *seen, unsigned int count);
bool tide_front_get(struct xarray *front, u64 first, struct page **pages, unsigned int count);
void tide_front_add(struct xarray *front, u64 first, struct page **pages, unsigned int count);
void tide_front_drop(struct xarray *front, u64 first, unsigned int count);
void tide_front_end(struct xarray *front);
u64 tide_front_bytes(void);
int tide_front_init(void);
void tide_front_exit(void);

#endif /* TIDE_APP_FRONT_H */
