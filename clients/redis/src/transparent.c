// SPDX-License-Identifier: Apache-2.0
/* The transparent mode begins; its figures. */
#include <tidepool.h>

#include "back.h"
#include "databases.h"
#include "filter.h"
#include "names.h"
#include "policy.h"
#include "stub.h"
#include "transactions.h"
#include "transparent.h"
#include "values.h"

#define MODULE_OPTIONS	(REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | \
			 REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD)

static RedisModuleCtx *context;
static int is_appended;		/* what is being loaded */
static int all_back;

/**
 * transparent_each_figure() - what there is and was
 * @see: is given each name and value, and @context; there are TRANSPARENT_FIGURES
 * @context: whatever @see wants
 */
void transparent_each_figure(void (*see)(void *context, const char *name, uint64_t value), void *context)
{
	see(context, "away_values", stub_figures.away);
	see(context, "away_bytes", stub_figures.away_bytes);
	see(context, "away_went", stub_figures.went);
	see(context, "away_came", stub_figures.came);
	see(context, "away_lost", stub_figures.lost);
	see(context, "away_refused", stub_figures.refused);
}

static void add_to_info(void *context, const char *name, uint64_t value)
{
	RedisModule_InfoAddFieldULongLong(context, name, value);
}

static void info(RedisModuleInfoCtx *ctx, int for_crash_report)
{
	(void)for_crash_report;
	RedisModule_InfoAddSection(ctx, "transparent");
	transparent_each_figure(add_to_info, ctx);
}

static int refuse(RedisModuleCtx *ctx, const char *why)
{
	RedisModule_Log(ctx, "warning", "TRANSPARENT: %s", why);
	return REDISMODULE_ERR;
}

static void loading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t what, void *data)
{
	(void)ctx, (void)event, (void)data;
	is_appended = what == REDISMODULE_SUBEVENT_LOADING_AOF_START;
}

static int may_go(void)
{
	return !is_appended && away_may_go();
}

/* No filter sees the commands that an append-only file has behind its snapshot: they need all values. */
static void loaded(void)
{
	if (is_appended || all_back)
		back_bring_all(context);
}

/* What can fail comes first: a server that refuses a module does not forget its filter and timer. */
static int begin_all(RedisModuleCtx *ctx, const struct away_wish *wish)
{
	RedisModuleEvent load = { .id = REDISMODULE_EVENT_LOADING, .dataver = 1 };
	struct stub_snapshots snapshots = { .mark = !wish->back, .may_go = may_go, .loaded = loaded };

	all_back = wish->back;
	context = RedisModule_GetDetachedThreadSafeContext(ctx);
	return names_begin() || databases_begin(ctx) || stub_begin(ctx, &snapshots) ||
	       RedisModule_SubscribeToServerEvent(ctx, load, loading) ||
	       RedisModule_RegisterInfoFunc(ctx, info) || filter_begin(ctx, context) || away_begin(ctx, wish);
}

/**
 * transparent_begin() - have ordinary values go away from here on
 * @ctx: of the module's load, as the last that may fail
 * @wish: which
 * @quota: bytes of values that may be away; 0: what the administrator allows
 *
 * Return: REDISMODULE_OK, or REDISMODULE_ERR; the log says why.
 */
int transparent_begin(RedisModuleCtx *ctx, const struct away_wish *wish, uint64_t quota)
{
	const char *why;
	int error;

	if (api_find_transparent(ctx))
		return refuse(ctx, "it needs Redis 6.2.2");
	why = wish->back ? NULL : policy_refusal(ctx);
	if (why)
		return refuse(ctx, why);
	error = values_open(quota);
	if (error)
		return refuse(ctx, tidepool_strerror(error));
	RedisModule_SetModuleOptions(ctx, MODULE_OPTIONS);
	if (!begin_all(ctx, wish)) {
		transactions_find(ctx);
		return REDISMODULE_OK;
	}
	values_close();
	return refuse(ctx, "the server lacks memory");
}
