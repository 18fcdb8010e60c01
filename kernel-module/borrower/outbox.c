// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a borrower sends on a lane: requests and pings, and on the first of them
 * notes on pages that are of no use any more and changes of size. Everything is
 * gathered in one buffer and sent by whoever comes first; nobody waits for the network.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>

#include "borrower/breaker.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"
#include "borrower/forgets.h"
#include "borrower/lane.h"
#include "borrower/object.h"
#include "borrower/outbox.h"
#include "borrower/peer.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_FRAME_BYTES(n)	(sizeof(struct tide_frame) + (n) + TIDE_TAG_SIZE)
#define TIDE_GET_BYTES(n)	(sizeof(struct tide_get_head) +		\
				 (n) * sizeof(struct tide_get_item))
#define TIDE_FORGET_BYTES	(TIDE_NOTICE_MAX * sizeof(struct tide_forget_item))
#define TIDE_TX_BUFFER		(32 * 1024)

/* Room for @length bytes of metadata and their tag; sealed when all is written. */
static void *tide_tx_frame(struct tide_lane *lane, u8 type, u8 flags,
			   unsigned int count, u64 id, size_t length)
{
	struct tide_frame *frame = (void *)(lane->tx_buffer + lane->tx_length);

	*frame = (struct tide_frame) {
		.length = cpu_to_le32(length + TIDE_TAG_SIZE),
		.type = type,
		.flags = flags,
		.count = cpu_to_le16(count),
		.id = cpu_to_le64(id),
	};
	lane->tx_length += TIDE_FRAME_BYTES(length);
	return frame + 1;
}

static size_t tide_tx_room(const struct tide_lane *lane)
{
	return TIDE_TX_BUFFER - lane->tx_length;
}

static void tide_tx_forgets(struct tide_lane *lane)
{
	struct tide_lender *lender = lane->lender;
	unsigned int i, n;
	struct tide_forget_item *item;

	if (READ_ONCE(lender->forget_head) == READ_ONCE(lender->forget_tail))
		return;
	spin_lock_irq(&lender->forget_lock);
	n = min_t(unsigned int, lender->forget_head - lender->forget_tail,
		  lender->agreed.notices);
	if (n && tide_tx_room(lane) >= TIDE_FRAME_BYTES(TIDE_FORGET_BYTES)) {
		item = tide_tx_frame(lane, TIDE_FORGET, 0, n, 0, n * sizeof(*item));
		for (i = 0; i < n; i++)
			item[i] = lender->forget[lender->forget_tail++ % TIDE_FORGET_RING];
	}
	spin_unlock_irq(&lender->forget_lock);
}

static void tide_tx_get(struct tide_lane *lane, const struct tide_get *get)
{
	struct tide_get_head *head;
	struct tide_get_item *item;
	unsigned int i;

	head = tide_tx_frame(lane, TIDE_GET,
			     get->exclusive ? TIDE_FLAG_EXCLUSIVE : 0,
			     get->count, get->id, TIDE_GET_BYTES(get->count));
	head->file = cpu_to_le64(get->object->id);
	item = (void *)(head + 1);
	for (i = 0; i < get->count; i++) {
		item[i].index = cpu_to_le64(get->page[i].index);
		item[i].version = cpu_to_le64(get->page[i].version);
	}
	atomic64_inc(&lane->lender->stats.gets_sent);
}

/* Moves the requests that fit from unsent to pending and writes their frames. */
static void tide_tx_gets(struct tide_lane *lane)
{
	struct tide_get *get;

	if (list_empty_careful(&lane->unsent))
		return;
	spin_lock_irq(&lane->pending_lock);
	while ((get = list_first_entry_or_null(&lane->unsent, struct tide_get, list)) &&
	       tide_tx_room(lane) >= TIDE_FRAME_BYTES(TIDE_GET_BYTES(get->count))) {
		tide_tx_get(lane, get);
		list_move_tail(&get->list, &lane->pending);
	}
	spin_unlock_irq(&lane->pending_lock);
}

/* The breaker goes by the pings of the first lane. */
static void tide_tx_ping(struct tide_lane *lane)
{
	u64 now = ktime_get_ns();

	tide_tx_frame(lane, TIDE_PING, 0, 0, now, 0);
	if (tide_lane_is_first(lane))
		tide_breaker_pinged(lane->lender, now);
}

static void tide_tx_resize(struct tide_lane *lane)
{
	struct tide_lender *lender = lane->lender;
	__le64 *bytes;

	WRITE_ONCE(lender->resize_due, false);
	bytes = tide_tx_frame(lane, TIDE_RESIZE, 0, 0, 0, sizeof(*bytes));
	*bytes = cpu_to_le64(READ_ONCE(lender->config.size_bytes));
}

/*
 * With tx_mutex held and the buffer empty: what is there to be said? Mostly nothing: so
 * it is looked at without a lock. What comes meanwhile finds the mutex held, and is
 * seen by tide_tx_unsent(), if it is a request, else a second later.
 */
static void tide_tx_fill(struct tide_lane *lane)
{
	lane->tx_offset = 0;
	lane->tx_length = 0;
	tide_tx_gets(lane);
	if (READ_ONCE(lane->ping_due) && xchg(&lane->ping_due, false) && tide_tx_room(lane) >= 64)
		tide_tx_ping(lane);
	if (!tide_lane_is_first(lane))
		return;
	if (READ_ONCE(lane->lender->resize_due) && tide_tx_room(lane) >= 64)
		tide_tx_resize(lane);
	tide_tx_forgets(lane);
}

/* With tx_mutex held and the buffer filled: no lock may be held for this. */
static int tide_tx_seal(struct tide_lane *lane)
{
	size_t at = 0, length;
	int err = 0;

	while (at < lane->tx_length && !err) {
		struct tide_frame *frame = (void *)(lane->tx_buffer + at);

		length = le32_to_cpu(frame->length);
		err = tide_frame_seal(lane->link.seal.send, frame, frame + 1,
				      length - TIDE_TAG_SIZE);
		at += sizeof(*frame) + length;
	}
	return err;
}

/* With tx_mutex held; 0, -EAGAIN when the socket is full, or an error. */
static int tide_tx_drain(struct tide_lane *lane, int flags)
{
	int n;

	for (;;) {
		if (!lane->link.wire || !lane->link.seal.send)
			return 0;	/* not before the handshake is over */
		if (lane->tx_offset == lane->tx_length) {
			tide_tx_fill(lane);
			if (!lane->tx_length)
				return 0;
			n = tide_tx_seal(lane);
			if (n) {
				lane->tx_length = 0;	/* it must not go in the clear */
				return n;
			}
		}
		n = tide_wire_send(lane->link.wire,
				   lane->tx_buffer + lane->tx_offset,
				   lane->tx_length - lane->tx_offset, flags);
		if (n < 0)
			return n;
		lane->tx_offset += n;
	}
}

static bool tide_tx_unsent(struct tide_lane *lane)
{
	bool unsent;

	spin_lock_irq(&lane->pending_lock);
	unsent = !list_empty(&lane->unsent);
	spin_unlock_irq(&lane->pending_lock);
	return unsent;
}

/**
 * tide_get_pump() - send what waits to be sent
 * @lane: the lane
 * @flags: MSG_DONTWAIT: leave to a worker what the socket does not take now
 *
 * Whoever has the mutex sends for all; the others need not wait for it.
 *
 * Context: process.
 */
void tide_get_pump(struct tide_lane *lane, int flags)
{
	int err;

	do {
		if (flags & MSG_DONTWAIT) {
			if (!mutex_trylock(&lane->link.tx_mutex))
				return;
		} else {
			mutex_lock(&lane->link.tx_mutex);
		}
		err = tide_tx_drain(lane, flags);
		mutex_unlock(&lane->link.tx_mutex);
		if (err == -EAGAIN && (flags & MSG_DONTWAIT)) {
			queue_work(tide_disk_queue, &lane->tx_work);
			return;
		}
		if (err < 0) {
			tide_lane_failed(lane);
			return;
		}
	} while (READ_ONCE(lane->lender->ready) && tide_tx_unsent(lane));
}

static void tide_tx_work(struct work_struct *work)
{
	tide_get_pump(container_of(work, struct tide_lane, tx_work), 0);
}

/**
 * tide_tx_prepare() - allocate what sending on a lane needs
 * @lane: being created
 *
 * Return: 0 or -ENOMEM; what was allocated is freed by tide_tx_release().
 */
int tide_tx_prepare(struct tide_lane *lane)
{
	mutex_init(&lane->link.tx_mutex);
	INIT_WORK(&lane->tx_work, tide_tx_work);
	lane->tx_buffer = kvmalloc(TIDE_TX_BUFFER, GFP_KERNEL);
	return lane->tx_buffer ? 0 : -ENOMEM;
}

void tide_tx_release(struct tide_lane *lane)
{
	kvfree(lane->tx_buffer);
}
