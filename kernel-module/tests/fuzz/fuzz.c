// SPDX-License-Identifier: GPL-2.0
#include <stdio.h>

#include "fuzz.h"

u8 fuzz_input[INPUT_MAX];
size_t fuzz_length;
u64 fuzz_now_ns = 1;
struct task_struct fuzz_task;

static u64 state = 1;

void fuzz_seed(u64 seed)
{
	state = seed * 0x9e3779b97f4a7c15ULL + 1;
}

u64 fuzz_draw(u64 below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

bool fuzz_one_in(unsigned int n)
{
	return !fuzz_draw(n);
}

void fuzz_append(const void *data, size_t size)
{
	size = min(size, INPUT_MAX - fuzz_length);
	memcpy(fuzz_input + fuzz_length, data, size);
	fuzz_length += size;
}

void fuzz_append_random(size_t size)
{
	size = min(size, INPUT_MAX - fuzz_length);
	for (size_t i = 0; i < size; i += 97)	/* the rest is what was there */
		fuzz_input[fuzz_length + i] = fuzz_draw(256);
	fuzz_length += size;
}

unsigned int fuzz_count(unsigned int max)
{
	switch (fuzz_draw(40)) {
	case 0:
		return 0;
	case 1:
		return max;
	case 2:
		return max + 1;
	case 3:
		return fuzz_draw(65536);
	default:
		return 1 + fuzz_draw(4);
	}
}

void fuzz_frame(u8 type, unsigned int count, u64 id, size_t length)
{
	struct tide_frame frame = {
		.length = length + TIDE_TAG_SIZE, .type = fuzz_one_in(50) ? fuzz_draw(256) : type,
		.flags = fuzz_draw(4), .count = count, .id = id,
	};

	if (fuzz_one_in(50))
		frame.length = fuzz_one_in(2) ? frame.length + 1 - fuzz_draw(3) : fuzz_draw(UINT32_MAX);
	fuzz_append(&frame, sizeof(frame));
}

/* Its tag is one only in name. */
int tide_frame_open(struct tide_sealer *sealer, const struct tide_frame *frame, void *metadata, size_t size)
{
	u8 *bytes = metadata;
	volatile u8 sum = frame->type;

	(void)sealer;
	for (size_t i = 0; i < size + TIDE_TAG_SIZE; i++)
		sum ^= bytes[i];
	memset(bytes + size, 0, TIDE_TAG_SIZE);
	return fuzz_one_in(1000) ? -EBADMSG : 0;
}

int tide_frame_seal(struct tide_sealer *sealer, const struct tide_frame *frame, void *metadata, size_t size)
{
	(void)sealer;
	(void)frame;
	memset((u8 *)metadata + size, 7, TIDE_TAG_SIZE);
	return 0;
}

int fuzz_take(struct tide_wire *wire, void *data, size_t size)
{
	if (wire->left < size) {
		wire->left = 0;
		return -ECONNRESET;
	}
	memcpy(data, wire->input, size);
	wire->input += size;
	wire->left -= size;
	return 0;
}

int tide_wire_recv_head(struct tide_wire *wire, struct tide_frame *frame, ktime_t until)
{
	(void)until;
	return fuzz_take(wire, frame, sizeof(*frame));
}

int tide_wire_recv_metadata(struct tide_wire *wire, void *data, size_t size, ktime_t until)
{
	(void)until;
	return fuzz_take(wire, data, size);
}

void fuzz_fail(const char *what)
{
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

/* fuzz MESSAGES SEED: runs connections until that many messages have been sent. */
int main(int argc, char **argv)
{
	unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000, sent = 0, connections = 0;

	fuzz_seed(argc > 2 ? strtoul(argv[2], NULL, 0) : 1);
	while (sent < wanted) {
		fuzz_length = 0;
		sent += fuzz_connection();
		connections++;
	}
	printf("%lu messages on %lu connections\n", sent, connections);
	return 0;
}
