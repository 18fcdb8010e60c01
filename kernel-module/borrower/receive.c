// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a lender says: the frames of a lane, one after the other, each checked before
 * anything is done with it. Pages that were asked for go to fetch.c; what no request
 * is answered by (acknowledgements, evictions, grants) comes on the first lane only.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/printk.h>

#include "base/compat.h"
#include "base/histogram.h"
#include "borrower/breaker.h"
#include "borrower/catalog.h"
#include "borrower/fetch.h"
#include "borrower/lane.h"
#include "borrower/peer.h"
#include "borrower/receive.h"
#include "borrower/send_pages.h"
#include "transport/frames.h"
#include "uapi/wire.h"

#define TIDE_EWMA_SHIFT		3

static void tide_ponged(struct tide_lender *lender, u64 sent_ns, u64 rtt)
{
	tide_breaker_ponged(lender, sent_ns, rtt);
	tide_histogram_add(&lender->ping_latency, rtt);
	WRITE_ONCE(lender->ping_ns, rtt);
	if (!lender->rtt_ns)
		WRITE_ONCE(lender->rtt_ns, rtt);
	else
		WRITE_ONCE(lender->rtt_ns, lender->rtt_ns +
			   ((s64)(rtt - lender->rtt_ns) >> TIDE_EWMA_SHIFT));
}

/* What a frame has that carries nothing but metadata. */
static int tide_receive_all(struct tide_lane *lane, const struct tide_frame *frame, size_t size)
{
	if (le32_to_cpu(frame->length) != size + TIDE_TAG_SIZE)
		return -EPROTO;
	return tide_lane_metadata(lane, frame, size);
}

static int tide_receive_u64(struct tide_lane *lane, const struct tide_frame *frame, u64 *value)
{
	int err = tide_receive_all(lane, frame, sizeof(*value));

	*value = get_unaligned_le64(lane->rx_item);
	return err;
}

/* The breaker and the figures go by the pings of the first lane. */
static int tide_receive_pong(struct tide_lane *lane, const struct tide_frame *frame)
{
	u64 now, sent_ns = le64_to_cpu(frame->id);
	int err = frame->count ? -EPROTO : tide_receive_all(lane, frame, 0);

	if (err)
		return err;
	now = ktime_get_ns();
	if (sent_ns > now)
		return -EPROTO;
	if (tide_lane_is_first(lane))
		tide_ponged(lane->lender, sent_ns, now - sent_ns);
	return 0;
}

static int tide_receive_evicted(struct tide_lane *lane, const struct tide_frame *frame)
{
	unsigned int i, count = le16_to_cpu(frame->count);
	const struct tide_page_id *id = (void *)lane->rx_item;
	struct tide_lender *lender = lane->lender;
	int err;

	if (!count || count > lender->agreed.notices)
		return -EPROTO;
	err = tide_receive_all(lane, frame, count * sizeof(*id));
	if (err)
		return err;
	for (i = 0; i < count; i++)
		tide_catalog_evicted(lender->slot, le64_to_cpu(id[i].file),
				     le64_to_cpu(id[i].index), le64_to_cpu(id[i].version));
	atomic64_add(count, &lender->stats.evicted_notices);
	return 0;
}

static int tide_receive_evicted_before(struct tide_lane *lane, const struct tide_frame *frame)
{
	u64 version;
	int err = frame->count ? -EPROTO : tide_receive_u64(lane, frame, &version);

	if (!err)
		tide_catalog_evicted_before(lane->lender, version);
	return err;
}

static int tide_receive_grant(struct tide_lane *lane, const struct tide_frame *frame)
{
	const struct tide_grant *grant = (void *)lane->rx_item;
	struct tide_lender *lender = lane->lender;
	int err = tide_receive_all(lane, frame, sizeof(*grant));

	if (err)
		return err;
	WRITE_ONCE(lender->granted_pages, le64_to_cpu(grant->bytes) >> PAGE_SHIFT);
	lender->linger_ms = min_t(u64, le64_to_cpu(grant->linger_ms),
				  TIDE_LINGER_MAX_S * MSEC_PER_SEC);
	WRITE_ONCE(lender->held, frame->flags & TIDE_FLAG_HOLD);
	tide_catalog_granted(lender);
	return 0;
}

/* What only the first lane carries. */
static int tide_receive_first(struct tide_lane *lane, const struct tide_frame *frame)
{
	u64 value;

	switch (frame->type) {
	case TIDE_PUT_ACK:
		return tide_receive_u64(lane, frame, &value) ?:
		       tide_put_acknowledged(lane->lender, le64_to_cpu(frame->id),
					     le16_to_cpu(frame->count), value);
	case TIDE_EVICTED:
		return tide_receive_evicted(lane, frame);
	case TIDE_EVICTED_BEFORE:
		return tide_receive_evicted_before(lane, frame);
	case TIDE_GRANT:
		return tide_receive_grant(lane, frame);
	default:
		return -EPROTO;
	}
}

static int tide_receive_frame(struct tide_lane *lane, const struct tide_frame *frame)
{
	switch (frame->type) {
	case TIDE_DATA:
		return tide_get_data(lane, frame);
	case TIDE_PONG:
		return tide_receive_pong(lane, frame);
	default:
		return tide_lane_is_first(lane) ? tide_receive_first(lane, frame) : -EPROTO;
	}
}

/**
 * tide_receive_first_grant() - receive the lender's first word on the GET channel
 * @lender: the lender
 *
 * It says whether the session goes on; only then may PUT connect.
 *
 * Return: 0, or a negative errno like tide_receive_next().
 *
 * Context: the lender's thread.
 */
int tide_receive_first_grant(struct tide_lender *lender)
{
	struct tide_lane *lane = &lender->lane[0];
	struct tide_frame frame;
	int err = tide_lane_head(lane, &frame);

	if (err)
		return err;
	if (frame.type != TIDE_GRANT)
		return -EPROTO;
	lender->resumed = frame.flags & TIDE_FLAG_RESUMED;
	return tide_receive_grant(lane, &frame);
}

/**
 * tide_receive_next() - receive one frame and do what it says
 * @lane: where from
 *
 * Return: 0, or a negative errno, after which the connection is of no use: -EPROTO for
 * what no lender sends, -EBADMSG for what another one has sent.
 *
 * Context: the lane's thread.
 */
int tide_receive_next(struct tide_lane *lane)
{
	struct tide_frame frame;
	int err;

	err = tide_lane_head(lane, &frame);
	if (err)
		return err;
	tide_lane_expect(lane, le32_to_cpu(frame.length));
	tide_lane_heard(lane);
	return tide_receive_frame(lane, &frame);
}

/**
 * tide_receive_bad() - tell of a frame that no lender sends
 * @lender: who sent it
 * @err: what receiving ended with
 *
 * Return: Whether it was one.
 *
 * Context: any.
 */
bool tide_receive_bad(struct tide_lender *lender, int err)
{
	if (err != -EPROTO && err != -EBADMSG)
		return false;
	atomic64_inc(&lender->stats.bad_frames);
	pr_warn_ratelimited("lenders/%s: %s frame, connection closed\n", lender->name,
			    err == -EPROTO ? "malformed" : "forged");
	return true;
}

/**
 * tide_receive() - receive until the connection ends
 * @lane: where from
 *
 * Return: A negative errno.
 *
 * Context: the lane's thread.
 */
int tide_receive(struct tide_lane *lane)
{
	int err;

	do
		err = tide_receive_next(lane);
	while (!err);
	tide_receive_bad(lane->lender, err);
	return err;
}
