// SPDX-License-Identifier: Apache-2.0
/*
 * The server shows every command to a filter, also those of scripts and other modules.
 * The command itself is left as it is: so are its reply, its errors and who may say it.
 *
 * A filter may not change keys by itself: what the server has to tell replicas then would
 * stay behind. It calls TIDE.BACK, which is a command and does it on the filter's behalf.
 * Each call has a "!", or replicas would not be told that a key was found to be expired.
 */
#include "away.h"
#include "back.h"
#include "filter.h"
#include "names.h"
#include "patterns.h"
#include "stub.h"
#include "transactions.h"
#include "words.h"

#define BACK		"tide.back"
#define FEW_WORDS	64
#define SHORT		256	/* bytes of words that are quicker looked at than asked about */

/*
 * Those which need no value: they ask whether there is one, or put another in its place; or their keys are those of
 * another pool. PERSIST is none of them: where the server may evict only what has a time to live, a value whose key has
 * none must not be away.
 */
static const char *const needless[] = {
	"del", "unlink", "exists", "ttl", "pttl", "expiretime", "pexpiretime", "expire", "pexpire", "expireat",
	"pexpireat", "touch", "watch", "setex", "psetex", "setnx", "mset", "msetnx", "tide.set", "tide.get", "tide.del",
	NULL,
};

/* Of SET those, with their numbers, for which it need not know the value. */
static const char *const of_plain_set[] = { "nx", "xx", "keepttl", "ex", "px", "exat", "pxat", NULL };

/* Those which read keys that are not named as such. */
static const char *const reaching[] = { "sort", "sort_ro", "scan", "debug", NULL };

/* After which commands are queued. */
static const char *const beginning[] = { "multi", NULL };

/* After which a command may be run later than it was seen. */
static const char *const delaying[] = { "client", "cluster", "failover", "shutdown", NULL };

/**
 * struct command - what a client has said
 * @argv: its words
 * @argc: how many
 */
struct command {
	RedisModuleString **argv;
	int argc;
};

/**
 * struct keys - which of the words are keys
 * @at: where
 * @count: how many
 */
struct keys {
	int *at;
	int count;
};

static RedisModuleCtx *context;
static void (*errand)(RedisModuleCtx *ctx, const struct command *command, const struct keys *keys);
static const struct command *errand_command;
static const struct keys *errand_keys;

/* ---- TIDE.BACK ---- */

static int back_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
	int database = RedisModule_GetSelectedDb(ctx);

	(void)argv, (void)argc;
	if (!errand)
		return RedisModule_ReplyWithError(ctx, "ERR TIDE.BACK is the module's own");
	errand(ctx, errand_command, errand_keys);
	RedisModule_SelectDb(ctx, database);
	return RedisModule_ReplyWithNull(ctx);
}

static void run(void (*what)(RedisModuleCtx *ctx, const struct command *command, const struct keys *keys),
		const struct command *command, const struct keys *keys)
{
	RedisModuleCallReply *reply;

	if (RedisModule_GetContextFlags(context) & REDISMODULE_CTX_FLAGS_LOADING)
		return;
	errand = what;
	errand_command = command;
	errand_keys = keys;
	reply = RedisModule_Call(context, BACK, "!");
	errand = NULL;
	if (reply)
		RedisModule_FreeCallReply(reply);
}

static void bring_keys(RedisModuleCtx *ctx, const struct command *command, const struct keys *keys)
{
	for (int i = 0; i < keys->count; i++)
		back_bring_anywhere(ctx, command->argv[keys->at[i]]);
}

static void bring_patterns(RedisModuleCtx *ctx, const struct command *command, const struct keys *keys)
{
	(void)keys;
	patterns_bring(ctx, command->argv, command->argc);
}

/* ---- what a command needs ---- */

static int is_number(const RedisModuleString *word)
{
	const char *text = RedisModule_StringPtrLen(word, NULL);

	return *text >= '0' && *text <= '9';
}

/* SET k v needs no value, SET k v GET does, and IFEQ, and whatever else servers come to know. */
static int is_plain_set(const struct command *command)
{
	if (!is_word(command->argv[0], "set"))
		return 0;
	for (int i = 3; i < command->argc; i++)
		if (!is_one_of(command->argv[i], of_plain_set) && !is_number(command->argv[i]))
			return 0;
	return 1;
}

static int needs_values(const struct command *command)
{
	return !is_plain_set(command) && !is_one_of(command->argv[0], needless);
}

/* Notes them for transactions. Returns whether a value may be away. */
static int look_at(const struct command *command, const struct keys *keys)
{
	int in_transaction = transactions_may_be_open(), may_be_away = 0;
	uint32_t hash;

	for (int i = 0; i < keys->count; i++) {
		hash = names_hash(command->argv[keys->at[i]]);
		may_be_away |= names_may_have(hash);
		if (in_transaction)
			transactions_name(hash);
	}
	return may_be_away;
}

/* DEBUG OBJECT and the like do not say which words are keys. */
static void bring_for_debug(const struct command *command)
{
	struct keys keys = { .at = RedisModule_Alloc(command->argc * sizeof(int)) };

	for (int i = 2; i < command->argc; i++)
		keys.at[keys.count++] = i;
	if (look_at(command, &keys))
		run(bring_keys, command, &keys);
	RedisModule_Free(keys.at);
}

static void bring_for(const struct command *command)
{
	struct keys keys = { 0 };

	if (is_word(command->argv[0], "debug"))
		bring_for_debug(command);
	if (patterns_are_in(command->argv, command->argc))
		run(bring_patterns, command, NULL);
	keys.at = RedisModule_GetCommandKeys(context, command->argv, command->argc, &keys.count);
	if (!keys.at)
		return;
	if (look_at(command, &keys))
		run(bring_keys, command, &keys);
	RedisModule_Free(keys.at);
}

/* Keys are words: is no word of a short command the name of what is away? */
static int is_free(const struct command *command)
{
	size_t length, left = SHORT;

	if (transactions_may_be_open() || is_one_of(command->argv[0], reaching))
		return 0;
	for (int i = 1; i < command->argc; i++) {
		RedisModule_StringPtrLen(command->argv[i], &length);
		if (length > left || names_may_have(names_hash(command->argv[i])))
			return 0;
		left -= length;
	}
	return 1;
}

static void look_at_word(const RedisModuleString *word)
{
	if (is_one_of(word, beginning))
		transactions_begin();
	if (is_one_of(word, delaying))
		away_pause();
}

static void filter(RedisModuleCommandFilterCtx *seen)
{
	RedisModuleString *few[FEW_WORDS];
	struct command command = { .argv = few, .argc = RedisModule_CommandFilterArgsCount(seen) };

	if (!command.argc)
		return;
	look_at_word(RedisModule_CommandFilterArgGet(seen, 0));
	if (!stub_figures.stubs && !transactions_may_be_open())
		return;
	if (command.argc > FEW_WORDS)
		command.argv = RedisModule_Alloc(command.argc * sizeof(*command.argv));
	for (int i = 0; i < command.argc; i++)
		command.argv[i] = RedisModule_CommandFilterArgGet(seen, i);
	if (!is_free(&command) && needs_values(&command))
		bring_for(&command);
	if (command.argv != few)
		RedisModule_Free(command.argv);
}

/**
 * filter_begin() - see commands from here on
 * @ctx: of the module's load, which must not fail any more
 * @detached: a context that stays
 *
 * Return: 0, or -1.
 */
int filter_begin(RedisModuleCtx *ctx, RedisModuleCtx *detached)
{
	if (RedisModule_CreateCommand(ctx, BACK, back_command, "readonly no-monitor no-slowlog", 0, 0, 0))
		return -1;
	context = detached;
	return RedisModule_RegisterCommandFilter(ctx, filter, REDISMODULE_CMDFILTER_NOSELF) ? 0 : -1;
}
