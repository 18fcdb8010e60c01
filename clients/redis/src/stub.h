/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in the keyspace for a value that is away. */
#ifndef TIDEPOOL_REDIS_STUB_H
#define TIDEPOOL_REDIS_STUB_H

#include <stdatomic.h>
#include <stdint.h>

#include "api.h"

/**
 * struct stub - a value that is away, or that came in a snapshot
 * @number: of values_put(); 0: it is none of these
 * @bytes: of a value that came in a snapshot; NULL: it is away, or gone
 * @size: of the value
 * @name: names_hash() of its key
 */
struct stub {
	uint64_t number;
	char *bytes;
	uint32_t size;
	uint32_t name;
};

/**
 * struct stub_figures - what there is and was
 * @stubs: of any kind
 * @away: values that are away
 * @away_bytes: how long these are together
 * @went: values that have gone away
 * @came: values that have come back
 * @lost: values that no lender gave back
 * @refused: values that no lender took
 */
struct stub_figures {
	atomic_ullong stubs;
	atomic_ullong away;
	atomic_ullong away_bytes;
	atomic_ullong went;
	atomic_ullong came;
	atomic_ullong lost;
	atomic_ullong refused;
};

/**
 * struct stub_snapshots - what is to be done about snapshots
 * @mark: their ends, as values may be away
 * @may_go: may values of one that is loaded go away at once?
 * @loaded: the end of one is reached
 */
struct stub_snapshots {
	int mark;
	int (*may_go)(void);
	void (*loaded)(void);
};

extern struct stub_figures stub_figures;

int stub_begin(RedisModuleCtx *ctx, const struct stub_snapshots *wished);
void stub_set(RedisModuleKey *key, uint64_t number, uint32_t size, uint32_t name);
struct stub *stub_of(RedisModuleKey *key);
const char *stub_read(const struct stub *stub);

#endif /* TIDEPOOL_REDIS_STUB_H */
