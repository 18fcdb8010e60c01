// SPDX-License-Identifier: Apache-2.0
/*
 * To have a thread wait costs more than a get. So the server waits itself, for a moment at
 * most. When several clients get values, it reads all that they have sent, and then gets
 * those values in one call: they are on their way together. When lenders turn out to be slow,
 * threads wait for a while: the server stands still for a hundredth of its time at most.
 */
#include <errno.h>
#include <stdint.h>

#include "clock.h"
#include "gets.h"

#define MOST		64	/* that are got together */
#define RESTS		100	/* times as long as it has waited in vain */

static tidepool_pool *pool;
static unsigned int wait_us;
static unsigned int clients, clients_before;	/* that asked since it has slept, and before that */
static unsigned long long client;	/* the last one */
static long long alone_since;	/* a client asks again and again, from then on; 0: it does not */
static long long rests_until;	/* clock_us(); 0: it does not */
static struct get *waiting[MOST];
static unsigned int count;
static char room[MOST][GETS_ROOM];

static int rests(void)
{
	if (rests_until && clock_us() >= rests_until)
		rests_until = 0;
	return !!rests_until;
}

/* What lenders have not sent in time, and what is too large, a thread gets. */
static void note(struct get *get, const struct tidepool_call *call)
{
	get->value = (const void *)(uintptr_t)call->value;
	get->result = call->result ? call->result : (long long)call->value_size;
	if (call->result == -EAGAIN)
		rests_until = clock_us() + (long long)wait_us * RESTS;
	if (call->result == -EMSGSIZE)
		get->result = -EAGAIN;
}

static void make(struct get **gets, unsigned int number)
{
	struct tidepool_call calls[MOST];

	for (unsigned int i = 0; i < number; i++)
		calls[i] = (struct tidepool_call) {
			.what = TIDEPOOL_TRY_GET,
			.result = -EAGAIN,	/* a signal may come before it is made */
			.key = (uintptr_t)gets[i]->key,
			.key_size = gets[i]->key_size,
			.value = (uintptr_t)room[i],
			.value_size = GETS_ROOM,
		};
	tidepool_calls_within(pool, calls, number, wait_us);
	for (unsigned int i = 0; i < number; i++)
		note(gets[i], &calls[i]);
}

/**
 * gets_before_sleep() - get what is to be got together
 */
void gets_before_sleep(void)
{
	unsigned int number = count;

	clients_before = clients;
	clients = 0;
	client = 0;
	alone_since = 0;
	if (!number)
		return;
	count = 0;
	make(waiting, number);
	for (unsigned int i = 0; i < number; i++)
		waiting[i]->done(waiting[i]);
}

/**
 * gets_begin() - have the server wait for gets
 * @from: the pool
 * @us: for how long it waits at most; 0: threads do, as they must where the server does not
 *	call gets_before_sleep()
 */
void gets_begin(tidepool_pool *from, unsigned int us)
{
	pool = from;
	wait_us = us;
}

/* A long pipeline of one client must not hold up the others. */
static int is_long(void)
{
	if (!alone_since)
		alone_since = clock_us();
	return clock_us() - alone_since > wait_us;
}

/**
 * gets_turn() - who is to wait for another get
 * @from: who asks: the number of a client
 */
enum gets_turn gets_turn(unsigned long long from)
{
	int again = from == client;

	clients += !again;
	client = from;
	if (!wait_us || count == MOST || rests())
		return GETS_LATER;
	if (clients > 1 || clients_before > 1 || (again && is_long()))
		return GETS_TOGETHER;
	return GETS_ALONE;
}

/**
 * gets_alone() - get a value now
 * @get: @value and @result are set
 */
void gets_alone(struct get *get)
{
	make(&get, 1);
}

/**
 * gets_together() - get a value before the server sleeps, with others
 * @get: its done() is called then
 */
void gets_together(struct get *get)
{
	waiting[count++] = get;
}
