// SPDX-License-Identifier: Apache-2.0
/*
 * Tidepool for Redis and Valkey: TIDE.SET, TIDE.GET, TIDE.DEL and TIDE.STATS. Values go to a
 * pool of /dev/tidepool, and not into the server's memory: they are in no snapshot, no
 * replica and no append-only file, and may be gone when they are asked for. The
 * transparent mode is for ordinary values.
 *
 * Whoever has to wait for a lender for more than a moment does so in a thread, and the server
 * serves others. In a transaction and in a script nobody may wait elsewhere, so the server
 * waits.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <tidepool.h>

#include "api.h"
#include "gets.h"
#include "jobs.h"
#include "transparent.h"
#include "words.h"

#define NAME		"tidepool"
#define THREADS		4
#define MOST_THREADS	64
#define MOST_AT_ONCE	65536	/* bytes of a value that no thread puts, where nothing has to wait */
#define ABOVE		4096
#define LEAST_ABOVE	256		/* such a value is no number and has memory of its own */
#define IDLE_MS		60000
#define MOST_IDLE	1000000000

struct request;

/**
 * struct request - a command on its way
 * @job: what does it
 * @get: of a get that the server waits for itself
 * @client: who waits for it
 * @command: which it is
 * @ms: of a set: milliseconds until the value is gone; 0: never
 * @value: of a get: memory for free()
 * @result: of a get: the value's bytes; of a delete: how many were there; -1: @error
 * @error: an errno
 * @next: of a delete: the argument that is next
 * @deleted: of a delete: how many there were before that
 * @count: of arguments
 * @argument: behind the command's name, and how many bytes each has
 */
struct request {
	struct job job;
	struct get get;
	RedisModuleBlockedClient *client;
	const struct command *command;
	uint64_t ms;
	void *value;
	long long result;
	int error;
	int next;
	long long deleted;
	int count;
	struct {
		char *bytes;
		size_t size;
	} argument[];
};

/**
 * struct command - what clients may say
 * @run: does it, in any thread
 * @reply: says what came of it, in the server's
 */
struct command {
	long long (*run)(struct request *request);
	int (*reply)(RedisModuleCtx *ctx, struct request *request);
};

static tidepool_pool *pool;

/* ---- replies ---- */

static const struct {
	int error;
	const char *reply;
} errors[] = {
	{ EDQUOT, "QUOTA the quota of the pool, of the user or of the machine is full" },
	{ ENOTCONN, "NOLENDER no lender takes pages" },
	{ EAGAIN, "LATE lenders are too slow, or memory is too short; try again" },
	{ E2BIG, "TOOLARGE a value has 2 MiB at most" },
	{ EINVAL, "BADKEY a key has 1 to 250 bytes" },
	{ EBADF, "NOTALLOWED the server may only read from the pool, and not change it; or only put, and not read" },
};

static int reply_with_error(RedisModuleCtx *ctx, int error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			return RedisModule_ReplyWithError(ctx, errors[i].reply);
	RedisModule_Log(ctx, "warning", "/dev/tidepool: %s", tidepool_strerror(error));
	return RedisModule_ReplyWithError(ctx, "ERR /dev/tidepool failed; the server's log says how");
}

/* ---- requests ---- */

static void request_free(RedisModuleCtx *ctx, void *data)
{
	struct request *request = data;

	(void)ctx;
	free(request->value);
	free(request);
}

/* Arguments are copied: a thread must not touch the server's. NULL: there is no memory for them, or too much waits. */
static struct request *request_make(const struct command *command, RedisModuleString **argv, int argc)
{
	size_t size = sizeof(struct request), length;
	struct request *request;
	const char *bytes;
	char *room;

	for (int i = 1; i < argc; i++) {
		RedisModule_StringPtrLen(argv[i], &length);
		size += sizeof(request->argument[0]) + length;
	}
	request = jobs_have_room(size) ? calloc(1, size) : NULL;
	if (!request)
		return NULL;
	request->job.size = size;
	request->command = command;
	request->count = argc - 1;
	room = (char *)&request->argument[request->count];
	for (int i = 1; i < argc; i++) {
		bytes = RedisModule_StringPtrLen(argv[i], &length);
		request->argument[i - 1].bytes = memcpy(room, bytes, length);
		request->argument[i - 1].size = length;
		room += length;
	}
	return request;
}

static void request_run(struct request *request)
{
	do {
		errno = 0;
		request->result = request->command->run(request);
	} while (request->result < 0 && errno == EINTR);
	request->error = request->result < 0 ? errno : 0;
}

static void request_run_in_thread(struct job *job)
{
	struct request *request = (struct request *)job;

	request_run(request);
	RedisModule_UnblockClient(request->client, request);
}

static int request_reply(RedisModuleCtx *ctx, struct request *request)
{
	return request->error ? reply_with_error(ctx, request->error) : request->command->reply(ctx, request);
}

static int request_reply_later(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	(void)argv, (void)argc;
	return request_reply(ctx, RedisModule_GetBlockedClientPrivateData(ctx));
}

static int must_not_block(RedisModuleCtx *ctx)
{
	return RedisModule_GetContextFlags(ctx) & (REDISMODULE_CTX_FLAGS_MULTI | REDISMODULE_CTX_FLAGS_LUA |
						   REDISMODULE_CTX_FLAGS_DENY_BLOCKING);
}

/* Its client waits until it is done. */
static void request_block(RedisModuleCtx *ctx, struct request *request)
{
	request->client = RedisModule_BlockClient(ctx, request_reply_later, NULL, request_free, 0);
}

static void request_hand_over(struct request *request)
{
	request->job.run = request_run_in_thread;
	jobs_add(&request->job);
}

/* Has a request done and replied to; it is nobody's afterwards. */
static int request_serve(RedisModuleCtx *ctx, struct request *request)
{
	int replied;

	if (!request)
		return reply_with_error(ctx, EAGAIN);
	if (!must_not_block(ctx)) {
		request_block(ctx, request);
		request_hand_over(request);
		return REDISMODULE_OK;
	}
	request_run(request);
	replied = request_reply(ctx, request);
	request_free(ctx, request);
	return replied;
}

/* ---- what is none is refused before it is copied ---- */

static int is_key(const RedisModuleString *argument)
{
	size_t size;

	RedisModule_StringPtrLen(argument, &size);
	return size && size <= TIDEPOOL_KEY_MAX;
}

static int is_value(const RedisModuleString *argument)
{
	size_t size;

	RedisModule_StringPtrLen(argument, &size);
	return size <= TIDEPOOL_VALUE_MAX;
}

/* ---- TIDE.SET key value [EX seconds | PX milliseconds] ---- */

/*
 * Puts without a thread, unless that has to wait: while a client waits for one the server reads on, and moves all that
 * it has read of a pipeline for each command. Returns 0 or an errno; EAGAIN: a thread has to do it.
 */
static int set_at_once(RedisModuleString **argv, uint64_t ms)
{
	struct tidepool_call put = { .what = TIDEPOOL_TRY_PUT, .expire_ms = ms };
	size_t key_size, size;

	put.key = (uintptr_t)RedisModule_StringPtrLen(argv[1], &key_size);
	put.value = (uintptr_t)RedisModule_StringPtrLen(argv[2], &size);
	put.key_size = key_size;
	put.value_size = size;
	if (size > MOST_AT_ONCE || tidepool_calls(pool, &put, 1) != 1)
		return EAGAIN;
	return -put.result;
}

static long long set_run(struct request *request)
{
	return tidepool_put_for(pool, request->argument[0].bytes, request->argument[0].size,
				request->argument[1].bytes, request->argument[1].size, request->ms);
}

static int set_reply(RedisModuleCtx *ctx, struct request *request)
{
	(void)request;
	return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

static const struct command set = { set_run, set_reply };

/* How many milliseconds a unit has, 0 for what is none. */
static long long unit_ms(const RedisModuleString *name)
{
	size_t length;
	const char *unit = RedisModule_StringPtrLen(name, &length);

	if (length == 2 && !strncasecmp(unit, "EX", 2))
		return 1000;
	return length == 2 && !strncasecmp(unit, "PX", 2);
}

static int set_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	long long unit = 0, time = 0;
	struct request *request;
	int error;

	if (argc != 3 && argc != 5)
		return RedisModule_WrongArity(ctx);
	if (argc == 5) {
		unit = unit_ms(argv[3]);
		if (!unit)
			return RedisModule_ReplyWithError(ctx, "ERR syntax: TIDE.SET key value [EX seconds | PX milliseconds]");
		if (RedisModule_StringToLongLong(argv[4], &time) || time < 1 || time > INT64_MAX / 1000000)
			return RedisModule_ReplyWithError(ctx, "ERR the time to live must be a number, 1 or more");
	}
	if (!is_key(argv[1]))
		return reply_with_error(ctx, EINVAL);
	if (!is_value(argv[2]))
		return reply_with_error(ctx, E2BIG);
	error = set_at_once(argv, unit * time);
	if (error != EAGAIN)
		return error ? reply_with_error(ctx, error) : set_reply(ctx, NULL);
	request = request_make(&set, argv, 3);
	if (request)
		request->ms = unit * time;
	return request_serve(ctx, request);
}

/* ---- TIDE.GET key ---- */

static long long get_run(struct request *request)
{
	long long size = tidepool_get_new(pool, request->argument[0].bytes, request->argument[0].size,
					  &request->value);

	return size < 0 && errno == ENOENT ? 0 : size;
}

static int get_reply(RedisModuleCtx *ctx, struct request *request)
{
	if (!request->value)
		return RedisModule_ReplyWithNull(ctx);
	return RedisModule_ReplyWithStringBuffer(ctx, request->value, request->result);
}

static const struct command get = { get_run, get_reply };

/* The server has waited for it, with others: a thread goes on if that was not long enough. */
static void get_done(struct get *got)
{
	struct request *request = (struct request *)((char *)got - offsetof(struct request, get));

	if (got->result >= 0)
		request->value = malloc(got->result + 1);	/* it is none without memory, and not for having no bytes */
	if (got->result == -EAGAIN || (got->result >= 0 && !request->value)) {
		request_hand_over(request);
		return;
	}
	if (request->value)
		memcpy(request->value, got->value, got->result);
	request->result = got->result;
	request->error = got->result < 0 && got->result != -ENOENT ? -got->result : 0;
	RedisModule_UnblockClient(request->client, request);
}

static int get_together(RedisModuleCtx *ctx, RedisModuleString **argv)
{
	struct request *request = request_make(&get, argv, 2);

	if (!request)
		return reply_with_error(ctx, EAGAIN);
	request_block(ctx, request);
	request->get = (struct get) { request->argument[0].bytes, request->argument[0].size, .done = get_done };
	gets_together(&request->get);
	return REDISMODULE_OK;
}

static int get_alone(RedisModuleCtx *ctx, RedisModuleString **argv)
{
	struct get one = { 0 };

	one.key = RedisModule_StringPtrLen(argv[1], &one.key_size);
	gets_alone(&one);
	if (one.result >= 0)
		return RedisModule_ReplyWithStringBuffer(ctx, one.value, one.result);
	if (one.result == -ENOENT)
		return RedisModule_ReplyWithNull(ctx);
	if (one.result != -EAGAIN)
		return reply_with_error(ctx, -one.result);
	return request_serve(ctx, request_make(&get, argv, 2));
}

static int get_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	if (argc != 2)
		return RedisModule_WrongArity(ctx);
	if (!is_key(argv[1]))
		return reply_with_error(ctx, EINVAL);
	switch (must_not_block(ctx) ? GETS_LATER : gets_turn(RedisModule_GetClientId(ctx))) {
	case GETS_ALONE:
		return get_alone(ctx, argv);
	case GETS_TOGETHER:
		return get_together(ctx, argv);
	default:
		return request_serve(ctx, request_make(&get, argv, argc));
	}
}

/* ---- TIDE.DEL key [key...] ---- */

/* How many there were; after a signal it goes on where it was. */
static long long del_run(struct request *request)
{
	for (; request->next < request->count; request->next++) {
		if (!tidepool_delete(pool, request->argument[request->next].bytes, request->argument[request->next].size))
			request->deleted++;
		else if (errno != ENOENT)
			return -1;
	}
	return request->deleted;
}

static int del_reply(RedisModuleCtx *ctx, struct request *request)
{
	return RedisModule_ReplyWithLongLong(ctx, request->result);
}

static const struct command del = { del_run, del_reply };

static int del_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	if (argc < 2)
		return RedisModule_WrongArity(ctx);
	for (int i = 1; i < argc; i++)
		if (!is_key(argv[i]))
			return reply_with_error(ctx, EINVAL);
	return request_serve(ctx, request_make(&del, argv, argc));
}

/* ---- TIDE.STATS ---- */

static void reply_with_figure(void *context, const char *name, uint64_t value)
{
	RedisModuleCtx *ctx = context;

	RedisModule_ReplyWithSimpleString(ctx, name);
	RedisModule_ReplyWithLongLong(ctx, value);
}

static int stats_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	struct tidepool_stats stats;

	(void)argv;
	if (argc != 1)
		return RedisModule_WrongArity(ctx);
	if (tidepool_stats(pool, &stats))
		return reply_with_error(ctx, errno);
	RedisModule_ReplyWithArray(ctx, 2 * (14 + TRANSPARENT_FIGURES));
	reply_with_figure(ctx, "quota", stats.quota);
	reply_with_figure(ctx, "bytes", stats.bytes);
	reply_with_figure(ctx, "values", stats.values);
	reply_with_figure(ctx, "value_bytes", stats.value_bytes);
	reply_with_figure(ctx, "hits", stats.hits);
	reply_with_figure(ctx, "misses", stats.misses);
	reply_with_figure(ctx, "lost", stats.lost);
	reply_with_figure(ctx, "puts", stats.puts);
	reply_with_figure(ctx, "deletes", stats.deletes);
	reply_with_figure(ctx, "expired", stats.expired);
	reply_with_figure(ctx, "moved", stats.moved);
	reply_with_figure(ctx, "spilled", stats.spilled);
	reply_with_figure(ctx, "local", stats.local);
	reply_with_figure(ctx, "front_bytes", stats.front_bytes);
	transparent_each_figure(reply_with_figure, ctx);
	return REDISMODULE_OK;
}

/* ---- MODULE LOAD tidepool.so [POOL name] [QUOTA bytes] [THREADS number] [TRANSPARENT yes] ... ---- */

/**
 * struct wish - how the module was loaded
 * @name: of the pool; "": one that goes with the server
 * @limits: of it
 * @threads: that wait for lenders
 * @wait_us: for how long the server itself waits for a get; 0: not at all
 * @transparent: ordinary values go away, or come back
 * @away: which
 */
struct wish {
	char name[TIDEPOOL_NAME_MAX];
	struct tidepool_limits limits;
	unsigned int threads, wait_us;
	int transparent;
	struct away_wish away;
};

/* TRANSPARENT yes, no or back. */
static int wish_for_transparent(struct wish *wish, const RedisModuleString *value)
{
	wish->away.back = is_word(value, "back");
	wish->transparent = wish->away.back || is_word(value, "yes");
	return wish->transparent || is_word(value, "no");
}

static int wish_for_number(struct wish *wish, const RedisModuleString *option, long long number)
{
	if (is_word(option, "QUOTA") && number >= 1)
		wish->limits.quota = number;
	else if (is_word(option, "THREADS") && number >= 1 && number <= MOST_THREADS)
		wish->threads = number;
	else if (is_word(option, "WAIT") && number >= 0 && number <= GETS_MOST_US)
		wish->wait_us = number;
	else if (is_word(option, "ABOVE") && number >= LEAST_ABOVE && number <= TIDEPOOL_VALUE_MAX)
		wish->away.above = number;
	else if (is_word(option, "IDLE") && number >= 0 && number <= MOST_IDLE)
		wish->away.idle_ms = number * 1000;
	else
		return 0;
	return 1;
}

/* One option; whether it is right. */
static int wish_for(struct wish *wish, const RedisModuleString *option, const RedisModuleString *value)
{
	const char *text;
	long long number;
	size_t length;

	if (is_word(option, "POOL")) {
		text = RedisModule_StringPtrLen(value, &length);
		if (!length || length >= sizeof(wish->name))
			return 0;
		memcpy(wish->name, text, length);
		return 1;
	}
	if (is_word(option, "TRANSPARENT"))
		return wish_for_transparent(wish, value);
	return !RedisModule_StringToLongLong(value, &number) && wish_for_number(wish, option, number);
}

static int wish_read(RedisModuleCtx *ctx, struct wish *wish, RedisModuleString **argv, int argc)
{
	for (int i = 0; i < argc; i += 2) {
		if (i + 1 < argc && wish_for(wish, argv[i], argv[i + 1]))
			continue;
		RedisModule_Log(ctx, "warning", "%s: options are POOL name (1 to 63 bytes), QUOTA bytes (1 or more), "
				"THREADS number (1 to %d), WAIT microseconds (0 to %d), TRANSPARENT yes|no|back, "
				"ABOVE bytes (%d to %u) and IDLE seconds (0 to %d)", RedisModule_StringPtrLen(argv[i], NULL),
				MOST_THREADS, GETS_MOST_US, LEAST_ABOVE, TIDEPOOL_VALUE_MAX, MOST_IDLE);
		return REDISMODULE_ERR;
	}
	return REDISMODULE_OK;
}

/* A module has one function for each kind of event. */
static void loop_event(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data)
{
	(void)event, (void)data;
	if (what == REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP)
		gets_before_sleep();
	else if (what == REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP)
		away_after_sleep(ctx);
}

/* Whether the server says when it is about to sleep, and has slept: since 7.0. */
static int subscribe_to_loop(RedisModuleCtx *ctx)
{
	RedisModuleEvent loop = { .id = REDISMODULE_EVENT_EVENTLOOP, .dataver = 1 };

	return RedisModule_SubscribeToServerEvent(ctx, loop, loop_event) == REDISMODULE_OK;
}

static int begin(RedisModuleCtx *ctx, struct wish *wish)
{
	int error;

	pool = tidepool_open(wish->name, TIDEPOOL_EPHEMERAL, &wish->limits);
	if (!pool) {
		RedisModule_Log(ctx, "warning", "pool '%s': %s", wish->name, tidepool_strerror(errno));
		return REDISMODULE_ERR;
	}
	wish->away.has_loop = subscribe_to_loop(ctx);
	error = jobs_start(wish->threads);
	if (error)
		RedisModule_Log(ctx, "warning", "THREADS %u: %s", wish->threads, strerror(error));
	else if (!wish->transparent || !transparent_begin(ctx, &wish->away, wish->limits.quota)) {
		gets_begin(pool, wish->away.has_loop ? wish->wait_us : 0);
		return REDISMODULE_OK;
	}
	jobs_stop();
	tidepool_close(pool);
	return REDISMODULE_ERR;
}

static int create_commands(RedisModuleCtx *ctx)
{
	return RedisModule_CreateCommand(ctx, "tide.set", set_command, "write fast", 1, 1, 1) ||
	       RedisModule_CreateCommand(ctx, "tide.get", get_command, "readonly fast", 1, 1, 1) ||
	       RedisModule_CreateCommand(ctx, "tide.del", del_command, "write fast", 1, -1, 1) ||
	       RedisModule_CreateCommand(ctx, "tide.stats", stats_command, "readonly fast", 0, 0, 0);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	struct wish wish = { .threads = THREADS, .wait_us = GETS_WAIT_US, .away = { .above = ABOVE, .idle_ms = IDLE_MS } };

	if (api_find(ctx))
		return REDISMODULE_ERR;
	if (RedisModule_IsModuleNameBusy(NAME)) {
		RedisModule_Log(ctx, "warning", NAME " is loaded already: to change its options, restart the server with others");
		return REDISMODULE_ERR;
	}
	RedisModule_SetModuleAttribs(ctx, NAME, 1, REDISMODULE_APIVER_1);
	if (wish_read(ctx, &wish, argv, argc) || create_commands(ctx))
		return REDISMODULE_ERR;
	return begin(ctx, &wish);
}

/* The server refuses while anybody waits for a reply. */
int RedisModule_OnUnload(RedisModuleCtx *ctx);
int RedisModule_OnUnload(RedisModuleCtx *ctx)
{
	(void)ctx;
	jobs_stop();
	tidepool_close(pool);
	return REDISMODULE_OK;
}
