/* SPDX-License-Identifier: Apache-2.0 */
/* Gets that the server itself waits for, a moment: alone, or those of several clients together. */
#ifndef TIDEPOOL_REDIS_GETS_H
#define TIDEPOOL_REDIS_GETS_H

#include <stddef.h>

#include <tidepool.h>

#define GETS_ROOM	65536	/* bytes of a value that no thread gets */
#define GETS_WAIT_US	3000
#define GETS_MOST_US	100000

/* Who waits for a get. */
enum gets_turn {
	GETS_ALONE,	/* the server, at once: nobody else gets anything */
	GETS_TOGETHER,	/* it, before it sleeps, with others' gets */
	GETS_LATER,	/* a thread: lenders are slow, or too many get */
};

/**
 * struct get - a key, and what came of it
 * @key: its bytes
 * @key_size: how many
 * @value: memory of gets.c, until the next get
 * @result: the value's bytes, or a negative errno; -EAGAIN: a thread has to get it
 * @done: what to do then; of those that are got together
 */
struct get {
	const void *key;
	size_t key_size;
	const void *value;
	long long result;
	void (*done)(struct get *get);
};

void gets_begin(tidepool_pool *pool, unsigned int wait_us);
void gets_before_sleep(void);
enum gets_turn gets_turn(unsigned long long from);
void gets_alone(struct get *get);
void gets_together(struct get *get);

#endif /* TIDEPOOL_REDIS_GETS_H */
