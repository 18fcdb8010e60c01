// SPDX-License-Identifier: Apache-2.0
/*
 * Values that nobody has asked for in a while go away. A timer goes through the keys in
 * small steps, and copies such values for threads that put them into the pool. When one
 * is there, and still what the key has, a stub takes its place.
 *
 * Places are taken where no client's command is half done: what a filter has brought back
 * for a command stays until it was run. That is right after the server has waited for
 * events; for servers without such an event, in the timer: these filter commands again.
 *
 * Nothing goes away while a child writes a snapshot, which would copy the memory, or on a
 * replica, which must have what its master has. What may not be away any more, as the
 * server was made a replica or its policy was changed, comes home.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <tidepool.h>

#include "away.h"
#include "back.h"
#include "clock.h"
#include "databases.h"
#include "jobs.h"
#include "life.h"
#include "names.h"
#include "policy.h"
#include "stub.h"
#include "transactions.h"
#include "values.h"

#define BUSY_MS		10		/* between ticks */
#define IDLE_MS		100
#define STEP_US		500		/* of each tick, and of each time that places are taken */
#define HURRY_US	2500		/* of one that finds what has to come home, or to go because memory is full */
#define HOME_SHARE	4		/* one part in so many of the time is for what comes home, at most */
#define LONGEST_MS	10000		/* between ticks even then */
#define POLICY_US	1000000		/* between looks at the policy, for servers that do not tell of a change */
#define REFUSED_US	1000000		/* before values are offered again */
#define LONGEST_REST_US	10000000	/* between passes */
#define PASSES		4		/* in the time that a value has to be idle */
#define MOST_BYTES	(4u << 20)	/* on their way */
#define FULL		0.95f		/* of maxmemory: whatever is large goes away */
#define HALF_FULL	0.80f		/* up to here what is idle for as long as was asked for */

/**
 * struct going - a value on its way
 * @job: puts it
 * @next: another that is there
 * @number: in the pool
 * @database: of its key
 * @error: of values_put()
 * @name: bytes of its key's name
 * @size: bytes of the value
 * @bytes: name and value
 */
struct going {
	struct job job;
	struct going *next;
	uint64_t number;
	int database;
	int error;
	size_t name;
	size_t size;
	char bytes[];
};

static struct away_wish wish;
static struct policy policy;
static int flags;			/* of the server, at this tick */
static int pauses;			/* how often to leave places as they are */
static long long now, policy_at, refused_until, pass_ended;
static long long idle_since = LLONG_MIN / 2;	/* from when on it is known how long keys are idle */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct going *there;		/* what threads have put */
static struct going *first;		/* of that whose place is to be taken */
static unsigned int under_way;		/* with those that are there */
static size_t under_way_bytes;

/* ---- the pass through all keys ---- */

static struct {
	RedisModuleScanCursor *cursor;
	int database;
	int running;
	int full;			/* no more can be on its way */
	long long idle_ms;		/* that a value has to be */
	struct back_name *home;		/* keys of the last step whose stubs have to go */
	int hurry;			/* this tick has found what must not wait */
	long long home_us;		/* this tick has waited for what comes home */
} pass;

/**
 * away_may_go() - may values go away just now?
 */
int away_may_go(void)
{
	int server = RedisModule_GetContextFlags(NULL);

	return policy.goes && policy.evicted == EVICTED_ALL && !wish.back && !(server & REDISMODULE_CTX_FLAGS_SLAVE);
}

/**
 * away_pause() - a client's command may wait: leave places as they are, for a while
 */
void away_pause(void)
{
	pauses = 2;
}

static int may_go(void)
{
	return policy.goes && !wish.back && !(flags & REDISMODULE_CTX_FLAGS_SLAVE);
}

static int must_wait(void)
{
	return flags & (REDISMODULE_CTX_FLAGS_LOADING | REDISMODULE_CTX_FLAGS_ACTIVE_CHILD);
}

/* Less when memory fills: rather away than evicted. */
static long long idle_wanted(void)
{
	float used = RedisModule_GetUsedMemoryRatio();

	if (used <= HALF_FULL)
		return wish.idle_ms;
	return used >= FULL ? 0 : (long long)(wish.idle_ms * (FULL - used) / (FULL - HALF_FULL));
}

/* What an LFU policy has noted of a key is read as some time, until somebody asks for it. */
static int is_idle(RedisModuleKey *key)
{
	long long idle = -1;

	RedisModule_GetLRU(key, &idle);
	return idle >= pass.idle_ms && (now - idle_since) / 1000 >= pass.idle_ms;
}

/* Is it a value that goes away? */
static int is_for_away(RedisModuleKey *key, uint32_t name)
{
	size_t size;

	if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_STRING)
		return 0;
	size = RedisModule_ValueLength(key);
	if (size < wish.above || size > TIDEPOOL_VALUE_MAX || !is_idle(key) || transactions_need(name))
		return 0;
	return policy_lets_be_away(&policy, key);
}

static void put(struct job *job)
{
	struct going *going = (struct going *)job;

	going->error = values_put(going->number, going->bytes + going->name, going->size);
	pthread_mutex_lock(&mutex);
	going->next = there;
	there = going;
	pthread_mutex_unlock(&mutex);
}

static struct going *copy(const char *name, size_t name_size, const char *value, size_t size)
{
	struct going *going = malloc(sizeof(*going) + name_size + size);

	if (!going)
		return NULL;
	*going = (struct going) {
		.job = { .size = sizeof(*going) + name_size + size, .run = put },
		.number = values_number(),
		.database = pass.database,
		.name = name_size,
		.size = size,
	};
	memcpy(going->bytes, name, name_size);
	memcpy(going->bytes + name_size, value, size);
	return going;
}

static void send(const RedisModuleString *name, RedisModuleKey *key)
{
	size_t name_size, size;
	const char *name_bytes = RedisModule_StringPtrLen(name, &name_size);
	const char *value = RedisModule_StringDMA(key, &size, REDISMODULE_READ);
	struct going *going;

	pass.full = under_way_bytes + size > MOST_BYTES || !jobs_have_room(size);
	going = pass.full ? NULL : copy(name_bytes, name_size, value, size);
	if (!going)
		return;
	pass.hurry |= !pass.idle_ms;
	under_way++;
	under_way_bytes += going->job.size;
	jobs_add(&going->job);
}

static int has_to_go_home(const struct stub *stub, RedisModuleKey *key)
{
	return !stub->number || wish.back || flags & REDISMODULE_CTX_FLAGS_SLAVE || !policy_lets_be_away(&policy, key);
}

static void see(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key, void *data)
{
	struct stub *stub = key ? stub_of(key) : NULL;

	(void)data;
	if (stub) {
		databases_note(pass.database);
		if (has_to_go_home(stub, key))
			back_note(ctx, &pass.home, name);
	} else if (key && may_go() && now >= refused_until && !pass.full && is_for_away(key, names_hash(name))) {
		send(name, key);
	}
}

static void bring_home(RedisModuleCtx *ctx)
{
	struct back_name *home = pass.home;
	long long before;

	if (!home)
		return;
	pass.home = NULL;
	pass.hurry = 1;
	before = clock_us();
	back_go_home(ctx, home);
	pass.home_us += clock_us() - before;
}

static void end_pass(void)
{
	databases_seen();
	pass.running = 0;
	pass_ended = now;
}

/* A few keys; what has to come home of theirs comes. */
static void step(RedisModuleCtx *ctx)
{
	int more;

	RedisModule_SelectDb(ctx, pass.database);
	more = RedisModule_Scan(ctx, pass.cursor, see, NULL);
	bring_home(ctx);
	if (more)
		return;
	RedisModule_ScanCursorRestart(pass.cursor);
	if (++pass.database == databases_count())
		end_pass();
}

static long long rest_us(void)
{
	long long rest = pass.idle_ms * 1000 / PASSES;

	return rest < LONGEST_REST_US ? rest : LONGEST_REST_US;
}

static void go_on(RedisModuleCtx *ctx)
{
	pass.idle_ms = idle_wanted();
	pass.full = 0;
	pass.hurry = 0;
	if (!pass.running && now >= pass_ended + rest_us() && !under_way) {
		pass.running = 1;
		pass.database = 0;
	}
	while (pass.running && !pass.full && clock_us() < now + (pass.hurry ? HURRY_US : STEP_US))
		step(ctx);
}

/* Other values may be away, or have to come home: the next tick begins with the first key. */
static void pass_anew(void)
{
	RedisModule_ScanCursorRestart(pass.cursor);
	pass.running = 0;
	pass_ended = now - LONGEST_REST_US;
}

/* ---- what is looked at again, as it may be changed while the server runs ---- */

static void look_at_flags(RedisModuleCtx *ctx)
{
	int before = flags;

	flags = RedisModule_GetContextFlags(ctx);
	if ((flags ^ before) & REDISMODULE_CTX_FLAGS_SLAVE)
		pass_anew();
}

static void tell_of_policy(RedisModuleCtx *ctx)
{
	static const char *const what[] = {
		[EVICTED_NONE] = "all values come back",
		[EVICTED_VOLATILE] = "values of keys without a time to live come back",
		[EVICTED_ALL] = "no value has to come back",
	};

	RedisModule_Log(ctx, "notice", "TRANSPARENT: maxmemory-policy has changed: %s%s", what[policy.evicted],
			policy.goes ? "" : ", and none goes away");
}

static void look_at_policy(RedisModuleCtx *ctx)
{
	struct policy before = policy;

	policy_at = now + POLICY_US;
	policy_look(ctx, &policy);
	if (policy.evicted == before.evicted && policy.goes == before.goes)
		return;
	if (policy.goes && !before.goes)
		idle_since = clock_us();
	tell_of_policy(ctx);
	pass_anew();
}

/* CONFIG SET was done. */
static void config_event(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data)
{
	(void)event, (void)what, (void)data;
	look_at_policy(ctx);
}

/* ---- places are taken ---- */

/* Is it still what was put? */
static int is_same(RedisModuleKey *key, const struct going *going)
{
	const char *value;
	size_t size;

	if (RedisModule_ValueLength(key) != going->size)
		return 0;
	value = RedisModule_StringDMA(key, &size, REDISMODULE_READ);
	return size == going->size && !memcmp(value, going->bytes + going->name, size);
}

static void replace(RedisModuleKey *key, const struct going *going, uint32_t name)
{
	struct life life = life_of(key);

	stub_set(key, going->number, going->size, name);
	life_go_on(key, life);
	databases_note(going->database);
	stub_figures.went++;
}

static void take_place(RedisModuleCtx *ctx, const struct going *going)
{
	RedisModuleString *name = RedisModule_CreateString(ctx, going->bytes, going->name);
	uint32_t hash = names_hash(name);
	RedisModuleKey *key;

	RedisModule_SelectDb(ctx, going->database);
	key = RedisModule_OpenKey(ctx, name, REDISMODULE_WRITE | REDISMODULE_OPEN_KEY_NOTOUCH);
	if (may_go() && is_for_away(key, hash) && is_same(key, going))
		replace(key, going, hash);
	else
		values_drop(going->number);
	RedisModule_CloseKey(key);
	RedisModule_FreeString(ctx, name);
}

static void settle(RedisModuleCtx *ctx, struct going *going)
{
	if (going->error) {
		stub_figures.refused++;
		refused_until = clock_us() + REFUSED_US;
	} else {
		take_place(ctx, going);
	}
	under_way--;
	under_way_bytes -= going->job.size;
	free(going);
}

static void fetch(void)
{
	if (first)
		return;
	pthread_mutex_lock(&mutex);
	first = there;
	there = NULL;
	pthread_mutex_unlock(&mutex);
}

static int must_leave_places(void)
{
	if (RedisModule_AvoidReplicaTraffic())
		away_pause();
	return pauses && pauses--;
}

static void take_places(RedisModuleCtx *ctx)
{
	long long end = clock_us() + STEP_US;
	struct going *going;

	if (must_leave_places())
		return;
	look_at_flags(ctx);
	if (must_wait())
		return;
	for (fetch(); first && clock_us() < end; ) {
		going = first;
		first = going->next;
		settle(ctx, going);
	}
}

/**
 * away_after_sleep() - the server goes on: what has gone by now leaves its place
 * @ctx: where
 */
void away_after_sleep(RedisModuleCtx *ctx)
{
	if (under_way)
		take_places(ctx);
}

/* ---- the timer ---- */

static void look_around(RedisModuleCtx *ctx)
{
	now = clock_us();
	pass.home_us = 0;
	look_at_flags(ctx);
	transactions_check(ctx, now);
	if (now >= policy_at)
		look_at_policy(ctx);
}

/* A value that comes home late has the server wait, but not all the time. */
static long long pause_ms(void)
{
	long long pause = pass.running || under_way ? BUSY_MS : IDLE_MS;
	long long longer = pass.home_us / 1000 * HOME_SHARE;

	if (longer > LONGEST_MS)
		return LONGEST_MS;
	return longer > pause ? longer : pause;
}

static void tick(RedisModuleCtx *ctx, void *data)
{
	(void)data;
	look_around(ctx);
	if (!wish.has_loop && under_way)
		take_places(ctx);
	if (!must_wait()) {
		values_drop_now();
		go_on(ctx);
	}
	RedisModule_CreateTimer(ctx, pause_ms(), tick, NULL);
}

/**
 * away_begin() - have values go away from here on
 * @ctx: of the module's load, which must not fail any more
 * @wished: which
 *
 * Return: 0, or -1: there is no memory.
 */
int away_begin(RedisModuleCtx *ctx, const struct away_wish *wished)
{
	RedisModuleEvent config = { .id = REDISMODULE_EVENT_CONFIG, .dataver = 1 };

	wish = *wished;
	pass.cursor = RedisModule_ScanCursorCreate();
	if (!pass.cursor)
		return -1;
	policy_look(ctx, &policy);
	RedisModule_SubscribeToServerEvent(ctx, config, config_event);
	RedisModule_CreateTimer(ctx, IDLE_MS, tick, NULL);
	return 0;
}
