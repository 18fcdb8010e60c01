/* SPDX-License-Identifier: GPL-2.0-only */
/* Values by key: value.c. */
#ifndef TIDE_APP_VALUE_H
#define TIDE_APP_VALUE_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "appmem/spill.h"

struct tide_app_pool;
struct tide_shared;

/**
 * struct tide_value - what a key stands for
 * @node: in pool->values
 * @in_shared: in shared->values, if it shares a page
 * @spilled: where it is in the pool's spill file, if it has pages of its own there
 * @shared: the page that it shares with others, or NULL: it has its own, if any
 * @index: of its first page
 * @expires: boottime in nanoseconds, or 0
 * @offset: in that page, in bytes
 * @size: in bytes
 * @seen: when it was read the last time, see tide_front_seen()
 * @key_size: likewise
 * @key: what stands for it
 */
struct tide_value {
	struct rb_node node;
	union {
		struct list_head in_shared;
		struct tide_spilled spilled;
	};
	struct tide_shared *shared;
	u64 index;
	u64 expires;
	u32 offset, size;
	u32 seen;
	u8 key_size;
	u8 key[];
};

/* A key, in the kernel's memory. */
struct tide_key {
	const u8 *bytes;
	unsigned int size;
};

/**
 * struct tide_put - a value that is put
 * @key: of 1 to TIDEPOOL_KEY_MAX bytes
 * @from: the value, in the program's memory
 * @size: of it in bytes, TIDEPOOL_VALUE_MAX at most
 * @expire_ms: milliseconds until the key stands for nothing, or 0
 * @waits: for lenders, if need be
 */
struct tide_put {
	const struct tide_key *key;
	const void __user *from;
	size_t size;
	u64 expire_ms;
	bool waits;
};

struct tide_value *tide_value_at(struct tide_app_pool *pool, const struct tide_key *key);
struct tide_value *tide_value_find(struct tide_app_pool *pool, const struct tide_key *key);
bool tide_value_is_lost(struct tide_app_pool *pool, const struct tide_value *value);
int tide_value_put(struct tide_app_pool *pool, const struct tide_put *put);
int tide_value_delete(struct tide_app_pool *pool, const struct tide_key *key);
int tide_value_exists(struct tide_app_pool *pool, const struct tide_key *key, u32 *size);
unsigned int tide_value_keys(struct tide_app_pool *pool, const struct tide_key *after,
			     void *buffer, unsigned int size, unsigned int *used);
void tide_value_remove(struct tide_app_pool *pool, struct tide_value *value);
void tide_values_end(struct tide_app_pool *pool);

#endif /* TIDE_APP_VALUE_H */
