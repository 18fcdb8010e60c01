// SPDX-License-Identifier: Apache-2.0
/*
 * The data type of stubs. A snapshot has the value itself, which the child that writes it
 * fetches: whoever loads it needs the module, and no pool. An append-only file that is
 * rewritten as commands has an ordinary SET. Behind all keys a snapshot has a mark, for
 * append-only files that go on there.
 *
 * The server frees stubs in any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "databases.h"
#include "names.h"
#include "stub.h"
#include "values.h"

#define NAME	"tide-away"	/* nine bytes, in snapshots */
#define ENCVER	0

#define PATIENCE_US	60000000	/* with lenders that are late with what goes into a snapshot */
#define PAUSE_US	10000		/* between tries */

enum { GONE, HERE };		/* in snapshots */

struct stub_figures stub_figures;

static RedisModuleType *type;
static struct stub_snapshots snapshots;

static struct stub *make(uint64_t number, char *bytes, uint32_t size, uint32_t name)
{
	struct stub *stub = RedisModule_Alloc(sizeof(*stub));

	*stub = (struct stub) { .number = number, .bytes = bytes, .size = size, .name = name };
	names_add(name);
	stub_figures.stubs++;
	if (number) {
		stub_figures.away++;
		stub_figures.away_bytes += size;
	}
	return stub;
}

static void free_stub(void *value)
{
	struct stub *stub = value;

	if (stub->number) {
		values_drop(stub->number);
		stub_figures.away--;
		stub_figures.away_bytes -= stub->size;
	}
	if (stub->bytes)
		RedisModule_Free(stub->bytes);
	names_remove(stub->name);
	stub_figures.stubs--;
	RedisModule_Free(stub);
}

/**
 * stub_read() - the value
 * @stub: which stands for it
 *
 * Return: as values_get().
 */
const char *stub_read(const struct stub *stub)
{
	if (stub->number)
		return values_get(stub->number, stub->size);
	errno = ENOENT;
	return stub->bytes;
}

/* Lenders that are late have some time until they bring something again. */
static int is_worth_waiting(long long *late_since)
{
	long long now = clock_us();

	if (!*late_since)
		*late_since = now;
	return now < *late_since + PATIENCE_US;
}

static const char *read_patiently(const struct stub *stub)
{
	static long long late_since;	/* 0: they are not */
	const char *bytes = stub_read(stub);

	while (!bytes && errno == EAGAIN && is_worth_waiting(&late_since)) {
		usleep(PAUSE_US);
		bytes = stub_read(stub);
	}
	if (bytes)
		late_since = 0;
	return bytes;
}

/* A snapshot that lacks a value which is not gone is none: the child fails, and the last snapshot stays. */
static const char *read_for_snapshot(const struct stub *stub)
{
	const char *bytes = read_patiently(stub);

	if (!bytes && errno != ENOENT && RedisModule_GetContextFlags(NULL) & REDISMODULE_CTX_FLAGS_IS_CHILD)
		_exit(1);
	return bytes;
}

static void save(RedisModuleIO *io, void *value)
{
	struct stub *stub = value;
	const char *bytes = read_for_snapshot(stub);

	RedisModule_SaveUnsigned(io, bytes ? HERE : GONE);
	if (bytes)
		RedisModule_SaveStringBuffer(io, bytes, stub->size);
}

static void rewrite(RedisModuleIO *io, RedisModuleString *name, void *value)
{
	struct stub *stub = value;
	const char *bytes = read_for_snapshot(stub);

	if (bytes)
		RedisModule_EmitAOF(io, "SET", "sb", name, bytes, (size_t)stub->size);
}

/* Memory need not be enough for all values of a snapshot. */
static struct stub *make_loaded(char *bytes, size_t size, uint32_t name)
{
	uint64_t number = size <= UINT32_MAX && snapshots.may_go() ? values_number() : 0;

	if (!number || values_put(number, bytes, size))
		return make(0, bytes, size, name);
	RedisModule_Free(bytes);
	return make(number, NULL, size, name);
}

static void *load(RedisModuleIO *io, int encver)
{
	const RedisModuleString *key = RedisModule_GetKeyNameFromIO(io);
	uint32_t name = key ? names_hash(key) : NAMES_UNKNOWN;
	uint64_t what = encver == ENCVER ? RedisModule_LoadUnsigned(io) : HERE + 1;
	size_t size = 0;
	char *bytes;

	if (what > HERE || RedisModule_IsIOError(io))
		return NULL;
	databases_note_all();
	if (what == GONE)
		return make(0, NULL, 0, name);
	bytes = RedisModule_LoadStringBuffer(io, &size);
	if (bytes && !RedisModule_IsIOError(io) && size <= UINT32_MAX)
		return make_loaded(bytes, size, name);
	if (bytes)
		RedisModule_Free(bytes);
	return NULL;
}

/* Nothing: only that it is the end. */
static void save_end(RedisModuleIO *io, int when)
{
	(void)io, (void)when;
}

static int load_end(RedisModuleIO *io, int encver, int when)
{
	(void)io, (void)when;
	if (encver != ENCVER)
		return REDISMODULE_ERR;
	snapshots.loaded();
	return REDISMODULE_OK;
}

/**
 * stub_set() - a stub takes the place of a key's value, and has no time to live
 * @key: open for writing
 * @number: of the value in the pool
 * @size: its bytes
 * @name: names_hash() of the key
 */
void stub_set(RedisModuleKey *key, uint64_t number, uint32_t size, uint32_t name)
{
	RedisModule_ModuleTypeSetValue(key, type, make(number, NULL, size, name));
}

/**
 * stub_of() - the stub of a key
 * @key: open
 *
 * Return: NULL: it has none.
 */
struct stub *stub_of(RedisModuleKey *key)
{
	if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_MODULE || RedisModule_ModuleTypeGetType(key) != type)
		return NULL;
	return RedisModule_ModuleTypeGetValue(key);
}

/**
 * stub_begin() - have the type
 * @ctx: of the module's load
 * @wished: what is to be done about snapshots
 *
 * Return: 0, or -1.
 */
int stub_begin(RedisModuleCtx *ctx, const struct stub_snapshots *wished)
{
	RedisModuleTypeMethods methods = {
		.version = 2,
		.rdb_load = load,
		.rdb_save = save,
		.aof_rewrite = rewrite,
		.free = free_stub,
		.aux_load = load_end,
		.aux_save = wished->mark ? save_end : NULL,
		.aux_save_triggers = REDISMODULE_AUX_AFTER_RDB,
	};

	snapshots = *wished;
	type = RedisModule_CreateDataType(ctx, NAME, ENCVER, &methods);
	return type ? 0 : -1;
}
