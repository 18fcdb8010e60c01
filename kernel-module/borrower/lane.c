// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes: the connections of a session on which pages are asked for, each with a
 * thread that receives, decrypts and hands over, so that as many processors do. The
 * first is there as long as the session; what goes beyond it goes on any.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/smp.h>
#include <linux/uio.h>

#include "borrower/lane.h"
#include "borrower/peer.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_LONGEST		((size_t)TIDE_GET_MAX *	\
				 (sizeof(struct tide_data_item) + PAGE_SIZE))

/* ------------------------------------------------------------------ */
/* which one							       */
/* ------------------------------------------------------------------ */

/* Pages that are to come before those of a new request; no end of them where nothing is asked. */
static unsigned int tide_lane_load(const struct tide_lane *lane)
{
	return READ_ONCE(lane->accepting) && !READ_ONCE(lane->stalled) ? READ_ONCE(lane->load) :
									 UINT_MAX;
}

/**
 * tide_lane_choose() - on which lane to ask
 * @lender: the lender
 *
 * The one with the fewest pages outstanding, so that one reader who is read ahead for
 * keeps several processors busy, too; of equals this processor's own, whose lines of
 * it are here. Nothing is locked: who looks a moment too late asks where more is
 * outstanding.
 *
 * Context: any.
 */
struct tide_lane *tide_lane_choose(struct tide_lender *lender)
{
	unsigned int i, load, least = UINT_MAX, own = raw_smp_processor_id();
	struct tide_lane *lane, *best = &lender->lane[0];

	for (i = 0; i < lender->lanes && least; i++) {
		lane = &lender->lane[(own + i) % lender->lanes];
		load = tide_lane_load(lane);
		if (load < least) {
			best = lane;
			least = load;
		}
	}
	return best;
}

/**
 * tide_lane_accept() - requests may be queued from now on
 * @lane: connected
 *
 * Context: its receiving thread.
 */
void tide_lane_accept(struct tide_lane *lane)
{
	spin_lock_irq(&lane->pending_lock);
	WRITE_ONCE(lane->stalled, false);
	WRITE_ONCE(lane->accepting, true);
	spin_unlock_irq(&lane->pending_lock);
}

/**
 * tide_lanes_open() - how many lanes are in use
 * @lender: the lender
 */
unsigned int tide_lanes_open(const struct tide_lender *lender)
{
	unsigned int i, open = 0;

	for (i = 0; i < lender->lanes; i++)
		open += READ_ONCE(lender->lane[i].accepting);
	return open;
}

/* ------------------------------------------------------------------ */
/* receiving							       */
/* ------------------------------------------------------------------ */

/**
 * tide_lane_expect() - from now on a frame is waited for
 * @lane: connected
 * @bytes: what is left of one that has begun; 0: all of the next one, a pong at least
 *
 * Context: its receiving thread, or before there is one.
 */
void tide_lane_expect(struct tide_lane *lane, size_t bytes)
{
	WRITE_ONCE(lane->rx_until, tide_wire_until(min(bytes, TIDE_LONGEST)));
}

/**
 * tide_lane_silent() - is a frame so late that the lender is as good as gone?
 * @lane: connected
 */
bool tide_lane_silent(const struct tide_lane *lane)
{
	return ktime_after(ktime_get(), READ_ONCE(lane->rx_until));
}

/**
 * tide_lane_late() - a get was late: nothing more is asked until something comes
 * @lane: on which it was asked for
 *
 * Nothing of the lender at all; and when something has come on another lane,
 * nothing on this one.
 */
void tide_lane_late(struct tide_lane *lane)
{
	WRITE_ONCE(lane->stalled, true);
	WRITE_ONCE(lane->lender->stalled, true);
}

/**
 * tide_lane_heard() - something comes from the lender
 * @lane: on which it comes
 *
 * Context: its receiving thread.
 */
void tide_lane_heard(struct tide_lane *lane)
{
	if (READ_ONCE(lane->stalled))
		WRITE_ONCE(lane->stalled, false);
	if (READ_ONCE(lane->lender->stalled))
		WRITE_ONCE(lane->lender->stalled, false);
}

/**
 * tide_lane_head() - receive the header of the next frame
 * @lane: connected
 * @frame: where to
 *
 * For one that never comes the session's tick ends the connection, so that no timer is
 * set for each frame; before requests are accepted there may be no tick.
 *
 * Context: its receiving thread, or before there is one.
 * Return: 0, -EAGAIN when it was not there in time, or an errno.
 */
int tide_lane_head(struct tide_lane *lane, struct tide_frame *frame)
{
	tide_lane_expect(lane, 0);
	return tide_wire_recv_head(lane->link.wire, frame,
				   READ_ONCE(lane->accepting) ? KTIME_MAX : lane->rx_until);
}

/**
 * tide_lane_recv() - receive pages' bytes on a lane
 * @lane: connected
 * @data: where to
 * @size: how many bytes
 *
 * Context: its receiving thread.
 * Return: 0, -EAGAIN when the frame was not there in time, or an errno.
 */
int tide_lane_recv(struct tide_lane *lane, void *data, size_t size)
{
	struct kvec vec = { .iov_base = data, .iov_len = size };
	struct iov_iter iter;

	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, size);
	return tide_wire_recv_iter(lane->link.wire, &iter, lane->rx_until);
}

/**
 * tide_lane_metadata() - receive what a frame has beside pages
 * @lane: connected
 * @frame: its header
 * @size: bytes of the metadata, as type and count imply
 *
 * Context: its receiving thread.
 * Return: 0, it is in @lane->rx_item then, -EBADMSG when the lender has not
 * sent this, or another negative errno.
 */
int tide_lane_metadata(struct tide_lane *lane, const struct tide_frame *frame, size_t size)
{
	return tide_wire_recv_metadata(lane->link.wire, lane->rx_item, size + TIDE_TAG_SIZE,
				       lane->rx_until) ?:
	       tide_frame_open(lane->link.seal.receive, frame, lane->rx_item, size);
}

/**
 * tide_lane_failed() - nothing can be sent any more
 * @lane: the lane
 *
 * Its end is that of the session, unless that was complete without it.
 *
 * Context: process.
 */
void tide_lane_failed(struct tide_lane *lane)
{
	if (tide_lane_is_first(lane) || READ_ONCE(lane->accepting))
		tide_lender_break(lane->lender);
}

/**
 * tide_lane_quiesce() - nothing works for a lane any more when this returns
 * @lane: no request is left on it, and none is accepted
 *
 * Context: process.
 */
void tide_lane_quiesce(struct tide_lane *lane)
{
	cancel_delayed_work_sync(&lane->deadline);
	cancel_work_sync(&lane->tx_work);
}
