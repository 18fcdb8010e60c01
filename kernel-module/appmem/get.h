/* SPDX-License-Identifier: GPL-2.0-only */
/* Gets of values: get.c. */
#ifndef TIDE_APP_GET_H
#define TIDE_APP_GET_H

#include <linux/types.h>

struct tide_app_pool;
struct tide_key;

int tide_value_get(struct tide_app_pool *pool, const struct tide_key *key, void __user *to,
		   u32 *size);

#endif /* TIDE_APP_GET_H */
