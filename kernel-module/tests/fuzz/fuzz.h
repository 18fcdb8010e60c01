/* SPDX-License-Identifier: GPL-2.0 */
/* What the two fuzzers share: random messages that are almost right, and the string of bytes they make. */
#ifndef FUZZ_H
#define FUZZ_H

#include "transport/frames.h"
#include "uapi/wire.h"

#define INPUT_MAX	(1 << 20)

extern u8 fuzz_input[INPUT_MAX];
extern size_t fuzz_length;

u64 fuzz_draw(u64 below);
void fuzz_seed(u64 seed);
bool fuzz_one_in(unsigned int n);

/* Appends to the input; what finds no room is cut off, as a connection may be. */
void fuzz_append(const void *data, size_t size);
void fuzz_append_random(size_t size);

/* A count that is often at an edge of what is allowed. */
unsigned int fuzz_count(unsigned int max);

/* A header with a length that is right, off by one, or anything; @length without the tag. */
void fuzz_frame(u8 type, unsigned int count, u64 id, size_t length);

/* Fills from the input; -ECONNRESET at its end. */
int fuzz_take(struct tide_wire *wire, void *data, size_t size);

void fuzz_fail(const char *what) __attribute__((noreturn));

#define fuzz_assert(condition)						\
	do {								\
		if (!(condition))					\
			fuzz_fail(#condition);				\
	} while (0)

/* One connection's worth of messages; how many. */
unsigned long fuzz_connection(void);

#endif /* FUZZ_H */
