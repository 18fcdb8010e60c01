// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a borrower sends on the GET channel: requests, notes on pages that are
 * of no use any more, pings, changes of size. Everything is gathered in one
 * buffer and sent by whoever comes first; nobody waits for the network.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>

#include "borrower/breaker.h"
#include "borrower/catalog.h"
#include "borrower/fetch.h"
#include "borrower/object.h"
#include "borrower/outbox.h"
#include "borrower/session.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_FORGET_RING	1024
#define TIDE_FRAME_BYTES(n)	(sizeof(struct tide_frame) + (n) + TIDE_TAG_SIZE)
#define TIDE_GET_BYTES(n)	(sizeof(struct tide_get_head) +		\
				 (n) * sizeof(struct tide_get_item))
#define TIDE_FORGET_BYTES	(TIDE_NOTICE_MAX * sizeof(struct tide_forget_item))
#define TIDE_TX_BUFFER		(32 * 1024)

/* ------------------------------------------------------------------ */
/* notes on what the lender may drop				       */
/* ------------------------------------------------------------------ */

/**
 * tide_forget() - note that a lender's pages are of no use any more
 * @slot: of the lender
 * @file: the file's name on the wire
 * @first: first page index
 * @last: last page index, inclusive
 *
 * A hint only: notes that find no room are lost, and the lender will recycle
 * those pages when they are its oldest.
 *
 * Context: any.
 */
void tide_forget(int slot, u64 file, pgoff_t first, pgoff_t last)
{
	struct tide_lender *lender;
	unsigned long flags;

	rcu_read_lock();
	lender = rcu_dereference(tide_lenders[slot]);
	if (!lender || !READ_ONCE(lender->session))
		goto out;
	spin_lock_irqsave(&lender->forget_lock, flags);
	if (lender->forget_head - lender->forget_tail < TIDE_FORGET_RING) {
		lender->forget[lender->forget_head++ % TIDE_FORGET_RING] =
			(struct tide_forget_item) {
				.file = cpu_to_le64(file),
				.first = cpu_to_le64(first),
				.last = cpu_to_le64(last),
				.before = cpu_to_le64(tide_next_version()),
			};
	}
	spin_unlock_irqrestore(&lender->forget_lock, flags);
out:
	rcu_read_unlock();	/* the tick sends them */
}

/**
 * tide_forget_nothing() - there is nothing any more that a lender could drop
 * @lender: its session is over
 *
 * Context: process.
 */
void tide_forget_nothing(struct tide_lender *lender)
{
	spin_lock_irq(&lender->forget_lock);
	lender->forget_tail = lender->forget_head;
	spin_unlock_irq(&lender->forget_lock);
}

/* ------------------------------------------------------------------ */
/* sending							       */
/* ------------------------------------------------------------------ */

/* Room for @length bytes of metadata and their tag; sealed when all is written. */
static void *tide_tx_frame(struct tide_lender *lender, u8 type, u8 flags,
			   unsigned int count, u64 id, size_t length)
{
	struct tide_frame *frame = (void *)(lender->tx_buffer + lender->tx_length);

	*frame = (struct tide_frame) {
		.length = cpu_to_le32(length + TIDE_TAG_SIZE),
		.type = type,
		.flags = flags,
		.count = cpu_to_le16(count),
		.id = cpu_to_le64(id),
	};
	lender->tx_length += TIDE_FRAME_BYTES(length);
	return frame + 1;
}

static size_t tide_tx_room(const struct tide_lender *lender)
{
	return TIDE_TX_BUFFER - lender->tx_length;
}

static void tide_tx_forgets(struct tide_lender *lender)
{
	unsigned int i, n;
	struct tide_forget_item *item;

	spin_lock_irq(&lender->forget_lock);
	n = min_t(unsigned int, lender->forget_head - lender->forget_tail,
		  lender->agreed.notices);
	if (n && tide_tx_room(lender) >= TIDE_FRAME_BYTES(TIDE_FORGET_BYTES)) {
		item = tide_tx_frame(lender, TIDE_FORGET, 0, n, 0, n * sizeof(*item));
		for (i = 0; i < n; i++)
			item[i] = lender->forget[lender->forget_tail++ % TIDE_FORGET_RING];
	}
	spin_unlock_irq(&lender->forget_lock);
}

static void tide_tx_get(struct tide_lender *lender, const struct tide_get *get)
{
	struct tide_get_head *head;
	struct tide_get_item *item;
	unsigned int i;

	head = tide_tx_frame(lender, TIDE_GET,
			     get->exclusive ? TIDE_FLAG_EXCLUSIVE : 0,
			     get->count, get->id, TIDE_GET_BYTES(get->count));
	head->file = cpu_to_le64(get->object->id);
	item = (void *)(head + 1);
	for (i = 0; i < get->count; i++) {
		item[i].index = cpu_to_le64(get->page[i].index);
		item[i].version = cpu_to_le64(get->page[i].version);
	}
	atomic64_inc(&lender->stats.gets_sent);
}

/* Moves the requests that fit from unsent to pending and writes their frames. */
static void tide_tx_gets(struct tide_lender *lender)
{
	struct tide_get *get;

	spin_lock_irq(&lender->pending_lock);
	while ((get = list_first_entry_or_null(&lender->unsent, struct tide_get, list)) &&
	       tide_tx_room(lender) >= TIDE_FRAME_BYTES(TIDE_GET_BYTES(get->count))) {
		tide_tx_get(lender, get);
		list_move_tail(&get->list, &lender->pending);
	}
	spin_unlock_irq(&lender->pending_lock);
}

/* With tx_mutex held and the buffer empty: what is there to be said? */
static void tide_tx_fill(struct tide_lender *lender)
{
	lender->tx_offset = 0;
	lender->tx_length = 0;
	tide_tx_gets(lender);
	if (xchg(&lender->ping_due, false) && tide_tx_room(lender) >= 64) {
		u64 now = ktime_get_ns();

		tide_tx_frame(lender, TIDE_PING, 0, 0, now, 0);
		tide_breaker_pinged(lender, now);
	}
	if (READ_ONCE(lender->resize_due) && tide_tx_room(lender) >= 64) {
		__le64 *bytes;

		WRITE_ONCE(lender->resize_due, false);
		bytes = tide_tx_frame(lender, TIDE_RESIZE, 0, 0, 0, sizeof(*bytes));
		*bytes = cpu_to_le64(READ_ONCE(lender->config.size_bytes));
	}
	tide_tx_forgets(lender);
}

/* With tx_mutex held and the buffer filled: no lock may be held for this. */
static int tide_tx_seal(struct tide_lender *lender)
{
	size_t at = 0, length;
	int err = 0;

	while (at < lender->tx_length && !err) {
		struct tide_frame *frame = (void *)(lender->tx_buffer + at);

		length = le32_to_cpu(frame->length);
		err = tide_frame_seal(lender->get_seal.send, frame, frame + 1,
				      length - TIDE_TAG_SIZE);
		at += sizeof(*frame) + length;
	}
	return err;
}

/* With tx_mutex held; 0, -EAGAIN when the socket is full, or an error. */
static int tide_tx_drain(struct tide_lender *lender, int flags)
{
	int n;

	for (;;) {
		if (!lender->get_sock || !lender->get_seal.send)
			return 0;	/* not before the handshake is over */
		if (lender->tx_offset == lender->tx_length) {
			tide_tx_fill(lender);
			if (!lender->tx_length)
				return 0;
			n = tide_tx_seal(lender);
			if (n) {
				lender->tx_length = 0;	/* it must not go in the clear */
				return n;
			}
		}
		n = tide_wire_send(lender->get_sock,
				   lender->tx_buffer + lender->tx_offset,
				   lender->tx_length - lender->tx_offset, flags);
		if (n < 0)
			return n;
		lender->tx_offset += n;
	}
}

static bool tide_tx_unsent(struct tide_lender *lender)
{
	bool unsent;

	spin_lock_irq(&lender->pending_lock);
	unsent = !list_empty(&lender->unsent);
	spin_unlock_irq(&lender->pending_lock);
	return unsent;
}

/**
 * tide_get_pump() - send what waits to be sent
 * @lender: the lender
 * @flags: MSG_DONTWAIT: leave to a worker what the socket does not take now
 *
 * Whoever has the mutex sends for all; the others need not wait for it.
 *
 * Context: process.
 */
void tide_get_pump(struct tide_lender *lender, int flags)
{
	int err;

	do {
		if (flags & MSG_DONTWAIT) {
			if (!mutex_trylock(&lender->tx_mutex))
				return;
		} else {
			mutex_lock(&lender->tx_mutex);
		}
		err = tide_tx_drain(lender, flags);
		mutex_unlock(&lender->tx_mutex);
		if (err == -EAGAIN && (flags & MSG_DONTWAIT)) {
			queue_work(tide_disk_queue, &lender->tx_work);
			return;
		}
		if (err < 0) {
			tide_lender_break(lender);
			return;
		}
	} while (READ_ONCE(lender->ready) && tide_tx_unsent(lender));
}

static void tide_tx_work(struct work_struct *work)
{
	tide_get_pump(container_of(work, struct tide_lender, tx_work), 0);
}

/**
 * tide_tx_prepare() - allocate what sending to a lender needs
 * @lender: being created
 *
 * Return: 0 or -ENOMEM; what was allocated is freed by tide_tx_release().
 */
int tide_tx_prepare(struct tide_lender *lender)
{
	spin_lock_init(&lender->forget_lock);
	mutex_init(&lender->tx_mutex);
	INIT_WORK(&lender->tx_work, tide_tx_work);
	lender->tx_buffer = kvmalloc(TIDE_TX_BUFFER, GFP_KERNEL);
	lender->forget = kvcalloc(TIDE_FORGET_RING, sizeof(*lender->forget), GFP_KERNEL);
	return lender->tx_buffer && lender->forget ? 0 : -ENOMEM;
}

void tide_tx_release(struct tide_lender *lender)
{
	kvfree(lender->tx_buffer);
	kvfree(lender->forget);
}
