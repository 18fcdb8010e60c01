/* SPDX-License-Identifier: GPL-2.0-only */
/* Holes in pages that small values share: holes.c. */
#ifndef TIDE_APP_HOLES_H
#define TIDE_APP_HOLES_H

#include <linux/types.h>

struct tide_app_pool;

bool tide_holes_wait(struct tide_app_pool *pool);
void tide_holes_fill(struct tide_app_pool *pool);

#endif /* TIDE_APP_HOLES_H */
