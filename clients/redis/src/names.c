// SPDX-License-Identifier: Apache-2.0
/*
 * A counter for each hash of a name. That it is 0 is certain; that it is not says only
 * that it is worth a look. A counter that is full stays so.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "names.h"

#define COUNTERS	(4u << 20)
#define FULL		255

static atomic_uchar *counter;
static atomic_uint unknown;	/* values under names that nobody has told */

/**
 * names_begin() - have counters
 *
 * Return: 0, or -1: there is no memory for them.
 */
int names_begin(void)
{
	counter = calloc(COUNTERS, sizeof(*counter));
	return counter ? 0 : -1;
}

/**
 * names_hash() - a number for a name; FNV-1a
 * @name: of a key
 *
 * Return: any but NAMES_UNKNOWN.
 */
uint32_t names_hash(const RedisModuleString *name)
{
	uint64_t hash = 14695981039346656037u;
	const char *bytes;
	size_t size;

	bytes = RedisModule_StringPtrLen(name, &size);
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
	hash ^= hash >> 32;
	return (uint32_t)hash ? (uint32_t)hash : 1;
}

/**
 * names_add() - a value is away, in any thread
 * @hash: of its name, or NAMES_UNKNOWN
 */
void names_add(uint32_t hash)
{
	atomic_uchar *one = &counter[hash % COUNTERS];
	unsigned char count = *one;

	if (hash == NAMES_UNKNOWN)
		unknown++;
	else
		while (count != FULL && !atomic_compare_exchange_weak(one, &count, count + 1))
			;
}

/**
 * names_remove() - it is not any more, in any thread
 * @hash: as it was added
 */
void names_remove(uint32_t hash)
{
	atomic_uchar *one = &counter[hash % COUNTERS];
	unsigned char count = *one;

	if (hash == NAMES_UNKNOWN)
		unknown--;
	else
		while (count != FULL && !atomic_compare_exchange_weak(one, &count, count - 1))
			;
}

/**
 * names_may_have() - is it worth a look?
 * @hash: of a name
 */
int names_may_have(uint32_t hash)
{
	return counter[hash % COUNTERS] || unknown;
}
