// SPDX-License-Identifier: GPL-2.0
/* io_uring without its library: requests that the kernel goes on with after the call that submitted them. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stress.h"

struct uring {
	int fd;
	struct io_uring_params params;
	char *submissions, *completions;	/* the two rings */
	struct io_uring_sqe *entries;
};

static void *map_ring(int fd, size_t size, off_t what)
{
	void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

	if (ring == MAP_FAILED)
		die("io_uring ring");
	return ring;
}

struct uring *uring_new(void)
{
	struct uring *ring = calloc(1, sizeof(*ring));
	struct io_uring_params *p = &ring->params;

	ring->fd = syscall(SYS_io_uring_setup, URING_DEPTH, p);
	if (ring->fd < 0)
		die("io_uring_setup");
	ring->submissions = map_ring(ring->fd, p->sq_off.array + p->sq_entries * sizeof(__u32), IORING_OFF_SQ_RING);
	ring->completions = map_ring(ring->fd, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe),
				     IORING_OFF_CQ_RING);
	ring->entries = map_ring(ring->fd, p->sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	return ring;
}

static __u32 *word(char *ring, __u32 offset)
{
	return (__u32 *)(ring + offset);
}

static void push(struct uring *ring, struct io_uring_sqe entry)
{
	const struct io_uring_params *p = &ring->params;
	__u32 tail = *word(ring->submissions, p->sq_off.tail);
	__u32 slot = tail & *word(ring->submissions, p->sq_off.ring_mask);

	ring->entries[slot] = entry;
	word(ring->submissions, p->sq_off.array)[slot] = slot;
	__atomic_store_n(word(ring->submissions, p->sq_off.tail), tail + 1, __ATOMIC_RELEASE);
}

void uring_add(struct uring *ring, bool write, int fd, void *data, long length, long offset)
{
	push(ring, (struct io_uring_sqe) {
		.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
		.fd = fd, .addr = (unsigned long)data, .len = length, .off = offset, .user_data = length,
	});
}

/* What came of the request that is over first. */
static bool reap(struct uring *ring, struct io_uring_cqe *done)
{
	const struct io_uring_params *p = &ring->params;
	__u32 head = *word(ring->completions, p->cq_off.head);

	if (head == __atomic_load_n(word(ring->completions, p->cq_off.tail), __ATOMIC_ACQUIRE))
		return false;
	memcpy(done, ring->completions + p->cq_off.cqes +
	       (head & *word(ring->completions, p->cq_off.ring_mask)) * sizeof(*done), sizeof(*done));
	__atomic_store_n(word(ring->completions, p->cq_off.head), head + 1, __ATOMIC_RELEASE);
	return true;
}

static bool enter(const struct uring *ring, unsigned int submitted, unsigned int awaited)
{
	int n;

	do {
		n = syscall(SYS_io_uring_enter, ring->fd, submitted, awaited, IORING_ENTER_GETEVENTS, NULL, 0);
	} while (n < 0 && errno == EINTR);
	return n == (int)submitted;
}

bool uring_run(struct uring *ring, long count)
{
	struct io_uring_cqe done;
	bool whole = true;

	if (!enter(ring, count, count))
		return false;
	while (count--)
		whole &= reap(ring, &done) && done.res == (long)done.user_data;
	return whole;
}

/* As an event loop does: the ring's descriptor is ready when something is over. */
static bool await(struct uring *ring, struct io_uring_cqe *done)
{
	struct pollfd ready = { .fd = ring->fd, .events = POLLIN };

	while (!reap(ring, done))
		if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			return false;
	return true;
}

int uring_command(struct uring *ring, int fd, __u32 what, const void *command, size_t size)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_URING_CMD, .fd = fd, .cmd_op = what };
	struct io_uring_cqe done;

	memcpy(entry.cmd, command, size);
	push(ring, entry);
	if (!enter(ring, 1, 0) || !await(ring, &done))
		return -EIO;
	return done.res;
}
