// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a lender does with the frames of a borrower that has proved who it is.
 * Every count is checked against its maximum and every length against its
 * count before the payload is read.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>

#include "base/limits.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "lender/notes.h"
#include "lender/serve.h"
#include "lender/sessions.h"
#include "lender/shelf.h"
#include "lender/unwanted.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_SILENCE_MS		15000	/* a borrower pings each second */

/* ------------------------------------------------------------------ */
/* sending to the borrower					       */
/* ------------------------------------------------------------------ */

/* Of a GRANT; the first of a connection says whether its session goes on. */
static u8 tide_grant_flags(struct tide_connection *c)
{
	bool first = !c->greeted;

	c->greeted = true;
	return (first && c->resumed ? TIDE_FLAG_RESUMED : 0) |
	       (READ_ONCE(tide_lending_held) ? TIDE_FLAG_HOLD : 0);
}

/* A frame whose metadata are in the note. */
static int tide_send_note(struct tide_connection *c, u8 type, unsigned int count, u64 id,
			  size_t length)
{
	int err;

	if (type != TIDE_GRANT && !c->greeted)
		return -ENOTCONN;
	c->note.frame = (struct tide_frame) {
		.length = cpu_to_le32(length + TIDE_TAG_SIZE),
		.type = type,
		.flags = type == TIDE_GRANT ? tide_grant_flags(c) : 0,
		.count = cpu_to_le16(count),
		.id = cpu_to_le64(id),
	};
	err = tide_frame_seal(c->sealers.send, &c->note.frame, c->note.metadata, length);
	if (!err)
		err = tide_wire_send(c->wire, &c->note,
				     sizeof(c->note.frame) + length + TIDE_TAG_SIZE, 0);
	if (err < 0)
		tide_shut(c);	/* half of it may have gone */
	return err < 0 ? err : 0;
}

static int tide_reply_on(struct tide_connection *c, u8 type, unsigned int count, u64 id,
			 const void *payload, size_t length)
{
	memcpy(c->note.metadata, payload, length);
	return tide_send_note(c, type, count, id, length);
}

/* A frame without pages, on the GET channel; a GRANT comes before any other. */
static int tide_reply(struct tide_borrower *borrower, u8 type, unsigned int count,
		      u64 id, const void *payload, size_t length)
{
	int err = -ENOTCONN;

	mutex_lock(&borrower->send_mutex);
	if (borrower->get)
		err = tide_reply_on(borrower->get, type, count, id, payload, length);
	mutex_unlock(&borrower->send_mutex);
	return err;
}

static int tide_send_grant(struct tide_borrower *borrower)
{
	struct tide_grant grant = {
		.bytes = cpu_to_le64(READ_ONCE(borrower->granted_bytes)),
		.linger_ms = cpu_to_le64((u64)READ_ONCE(tide_linger_s) * MSEC_PER_SEC),
	};

	return tide_reply(borrower, TIDE_GRANT, 0, 0, &grant, sizeof(grant));
}

/* On a new connection, too: what was on its way on a former one is lost. */
static int tide_send_before(struct tide_connection *c, struct tide_notes *notes)
{
	__le64 version = cpu_to_le64(tide_notes_before(notes, &c->told));

	return version ? tide_reply_on(c, TIDE_EVICTED_BEFORE, 0, 0, &version, sizeof(version)) : 0;
}

static int tide_send_notices(struct tide_connection *c, struct tide_notes *notes)
{
	unsigned int n = tide_notes_take(notes, (void *)c->note.metadata, c->agreed.notices);
	int err = n ? tide_send_note(c, TIDE_EVICTED, n, 0, n * sizeof(struct tide_page_id)) : 0;

	if (!err)
		atomic64_add(n, &c->borrower->stats.notices_sent);
	return err ?: n;
}

/*
 * Tells the borrower some of what has gone, if it hears: else later, when it resumes.
 * Returns how many pages were named, or an error.
 */
static int tide_send_evicted(struct tide_borrower *borrower, struct tide_notes *notes)
{
	struct tide_connection *c;
	int ret = -ENOTCONN;

	mutex_lock(&borrower->send_mutex);
	c = borrower->get;
	if (c && c->greeted)
		ret = tide_send_before(c, notes) ?: tide_send_notices(c, notes);
	mutex_unlock(&borrower->send_mutex);
	return ret;
}

/**
 * tide_notify() - tell a borrower its grant, and which pages are gone
 * @work: borrower->notify
 *
 * Here and in the borrower's own connections, and nowhere else, somebody waits
 * until it has taken what it is sent.
 */
void tide_notify(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(to_delayed_work(work),
						      struct tide_borrower, notify);
	struct tide_shelf *shelf;

	if (xchg(&borrower->grant_due, false))
		tide_send_grant(borrower);
	shelf = READ_ONCE(borrower->shelf);	/* destroyed after this work */
	while (shelf && !tide_shelf_trimming(shelf) &&
	       tide_send_evicted(borrower, tide_shelf_notes(shelf)) > 0)
		;
}

/* ------------------------------------------------------------------ */
/* the GET channel, and lanes					       */
/* ------------------------------------------------------------------ */

static int tide_check(const struct tide_frame *frame, unsigned int max, size_t fixed,
		      size_t each)
{
	unsigned int count = le16_to_cpu(frame->count);

	if (count > max || le32_to_cpu(frame->length) != fixed + count * each + TIDE_TAG_SIZE)
		return -EPROTO;
	return 0;
}

/* What a frame has beside pages, of a size that was checked: into the request. */
static int tide_receive_metadata(struct tide_connection *c, const struct tide_frame *frame,
				 size_t size)
{
	return tide_wire_recv_metadata(c->wire, &c->request, size + TIDE_TAG_SIZE,
				       tide_wire_until(size)) ?:
	       tide_frame_open(c->sealers.receive, frame, &c->request, size);
}

/* The same for a frame that has no pages. */
static int tide_receive_all(struct tide_connection *c, const struct tide_frame *frame)
{
	return tide_receive_metadata(c, frame, le32_to_cpu(frame->length) - TIDE_TAG_SIZE);
}

static unsigned int tide_look_up(struct tide_connection *c, unsigned int count)
{
	u64 file = le64_to_cpu(c->request.get.head.file);
	unsigned int i, hits = 0;

	for (i = 0; i < count; i++) {
		struct tide_get_item *item = &c->request.get.item[i];
		struct tide_data_item *reply = &c->reply.item[i];

		*reply = (struct tide_data_item) { };
		c->folio[i] = tide_shelf_get(c->borrower->shelf, file,
					     le64_to_cpu(item->index),
					     le64_to_cpu(item->version), reply->tag);
		if (c->folio[i])
			reply->version = item->version;
		if (c->folio[i])
			c->bvec[TIDE_HEAD_PARTS + hits++] = (struct bio_vec) {
				.bv_page = folio_page(c->folio[i], 0),
				.bv_len = PAGE_SIZE,
			};
	}
	return hits;
}

static int tide_send_data_on(struct tide_connection *c, unsigned int count,
			     unsigned int hits, __le64 id)
{
	size_t items = count * sizeof(c->reply.item[0]);
	int err;

	c->reply.frame = (struct tide_frame) {
		.length = cpu_to_le32(items + TIDE_TAG_SIZE + (hits << PAGE_SHIFT)),
		.type = TIDE_DATA,
		.count = cpu_to_le16(count),
		.id = id,
	};
	err = tide_frame_seal(c->sealers.send, &c->reply.frame, c->reply.item, items);
	if (!err)
		err = tide_wire_send_frame(c->wire, &c->reply, sizeof(c->reply.frame) + items +
					   TIDE_TAG_SIZE, c->bvec, hits);
	if (err)
		tide_shut(c);	/* half of it may have gone */
	return err;
}

/* On a lane beyond the GET channel nobody else sends. */
static int tide_send_data(struct tide_connection *c, unsigned int count,
			  unsigned int hits, __le64 id)
{
	int err;

	if (c->channel == TIDE_CHANNEL_LANE)
		return tide_send_data_on(c, count, hits, id);
	mutex_lock(&c->borrower->send_mutex);
	err = tide_send_data_on(c, count, hits, id);
	mutex_unlock(&c->borrower->send_mutex);
	return err;
}

/* The borrower takes these pages back: they are of no more use here. */
static void tide_drop_sent(struct tide_connection *c, unsigned int count)
{
	u64 file = le64_to_cpu(c->request.get.head.file);
	unsigned int i, most = UINT_MAX;

	for (i = 0; i < count; i++) {
		const struct tide_get_item *item = &c->request.get.item[i];
		struct tide_range range = {
			.at.file = file, .at.index = le64_to_cpu(item->index),
			.last = le64_to_cpu(item->index),
			.before = le64_to_cpu(item->version) + 1,
		};

		if (c->folio[i])	/* was sent; the reply itself is sealed */
			tide_shelf_forget(c->borrower->shelf, &range, &most);
	}
}

static int tide_serve_get(struct tide_connection *c, const struct tide_frame *frame)
{
	unsigned int i, hits, count = le16_to_cpu(frame->count);
	int err;

	err = tide_check(frame, c->agreed.get, sizeof(c->request.get.head),
			 sizeof(c->request.get.item[0]));
	if (err || !count)
		return -EPROTO;
	err = tide_receive_all(c, frame);
	if (err)
		return err;
	hits = tide_look_up(c, count);
	atomic64_inc(&c->borrower->stats.gets);
	atomic64_add(hits, &c->borrower->stats.get_hits);
	atomic64_add(count - hits, &c->borrower->stats.get_misses);
	err = tide_send_data(c, count, hits, frame->id);
	for (i = 0; i < count; i++)
		if (c->folio[i])
			folio_put(c->folio[i]);
	if (!err && frame->flags & TIDE_FLAG_EXCLUSIVE)
		tide_drop_sent(c, count);
	return err;
}

static int tide_serve_forget(struct tide_connection *c, const struct tide_frame *frame)
{
	int err = tide_check(frame, c->agreed.notices, 0, sizeof(c->request.forget[0])) ?:
		  tide_receive_all(c, frame);

	if (!err)
		tide_unwanted_add(c->borrower, c->request.forget, le16_to_cpu(frame->count));
	return err;
}

static int tide_serve_resize(struct tide_connection *c, const struct tide_frame *frame)
{
	int err = tide_check(frame, 0, sizeof(c->request.bytes), 0) ?: tide_receive_all(c, frame);

	if (err)
		return err;
	WRITE_ONCE(c->borrower->wanted_bytes,
		   min_t(u64, le64_to_cpu(c->request.bytes), TIDE_MAX_BYTES));
	queue_work(tide_put_queue, &c->borrower->resize);
	return 0;
}

static int tide_serve_ping(struct tide_connection *c, const struct tide_frame *frame)
{
	u64 id = le64_to_cpu(frame->id);
	int err = tide_check(frame, 0, 0, 0) ?: tide_receive_all(c, frame);

	if (err)
		return err;
	return c->channel == TIDE_CHANNEL_LANE ? tide_reply_on(c, TIDE_PONG, 0, id, "", 0) :
						 tide_reply(c->borrower, TIDE_PONG, 0, id, "", 0);
}

static int tide_serve_lane_frame(struct tide_connection *c, const struct tide_frame *frame)
{
	switch (frame->type) {
	case TIDE_GET:
		c->vital = true;
		return tide_serve_get(c, frame);
	case TIDE_PING:
		return tide_serve_ping(c, frame);
	default:
		return -EPROTO;
	}
}

static int tide_serve_get_frame(struct tide_connection *c, const struct tide_frame *frame)
{
	switch (frame->type) {
	case TIDE_FORGET:
		return tide_serve_forget(c, frame);
	case TIDE_RESIZE:
		return tide_serve_resize(c, frame);
	default:
		return tide_serve_lane_frame(c, frame);
	}
}

/* ------------------------------------------------------------------ */
/* the PUT channel						       */
/* ------------------------------------------------------------------ */

/*
 * Allocates what the batch needs; a page that cannot be had, or is not wanted now,
 * goes to scratch.
 */
static void tide_prepare_batch(struct tide_connection *c, unsigned int count,
			       struct page *scratch)
{
	bool held = READ_ONCE(tide_lending_held);
	unsigned int i;

	for (i = 0; i < count; i++) {
		c->folio[i] = held ? NULL : tide_shelf_prepare(c->borrower->shelf);
		c->bvec[i] = (struct bio_vec) {
			.bv_page = c->folio[i] ? folio_page(c->folio[i], 0) : scratch,
			.bv_len = PAGE_SIZE,
		};
	}
}

/* All that it has ever put, kept or not: see tide_session_resumes(). */
static void tide_note_versions(struct tide_connection *c, unsigned int count)
{
	u64 newest = c->borrower->newest;
	unsigned int i;

	for (i = 0; i < count; i++)
		newest = max(newest, le64_to_cpu(c->request.put[i].id.version));
	c->borrower->newest = newest;
}

static u64 tide_shelf_batch(struct tide_connection *c, unsigned int count, bool usable)
{
	struct tide_borrower *borrower = c->borrower;
	unsigned int i, kept = 0;
	u64 stored = 0;

	for (i = 0; i < count; i++) {
		struct folio *folio = c->folio[i];

		if (folio && !usable) {
			tide_shelf_cancel(borrower->shelf, folio);
		} else if (folio && !tide_shelf_add(borrower->shelf, &c->request.put[i],
						    folio)) {
			c->folio[kept++] = folio;
			stored |= BIT_ULL(i);
		} else {
			atomic64_inc(&borrower->stats.puts_refused);
		}
	}
	tide_shelf_settle(borrower->shelf, c->folio, kept);
	return stored;
}

/*
 * Pages come no faster than the borrower learns which have gone for them, so that
 * no notice is ever lost for want of room.
 */
static int tide_tell_evicted(struct tide_connection *c)
{
	struct tide_notes *notes = tide_shelf_notes(c->borrower->shelf);
	int ret = 0;

	while (ret >= 0 && tide_notes_untold(notes) >= TIDE_NOTICE_MAX)
		ret = tide_send_evicted(c->borrower, notes);
	return min(ret, 0);
}

static int tide_serve_put(struct tide_connection *c, const struct tide_frame *frame,
			  struct page *scratch)
{
	unsigned int count = le16_to_cpu(frame->count);
	__le64 stored;
	int err;

	if (frame->type != TIDE_PUT || !count ||
	    tide_check(frame, c->agreed.put, 0, sizeof(c->request.put[0]) + PAGE_SIZE))
		return -EPROTO;
	err = tide_receive_metadata(c, frame, count * sizeof(c->request.put[0])) ?:
	      tide_tell_evicted(c);
	if (err)
		return err;
	tide_note_versions(c, count);
	tide_prepare_batch(c, count, scratch);
	err = tide_wire_recv_pages(c->wire, c->bvec, count);
	stored = cpu_to_le64(tide_shelf_batch(c, count, !err));
	return err ?:
	       tide_reply(c->borrower, TIDE_PUT_ACK, count, le64_to_cpu(frame->id), &stored,
			  sizeof(stored));
}

/* ------------------------------------------------------------------ */
/* the whole connection						       */
/* ------------------------------------------------------------------ */

static int tide_serve_frame(struct tide_connection *c, const struct tide_frame *frame,
			    struct page *scratch)
{
	switch (c->channel) {
	case TIDE_CHANNEL_GET:
		return tide_serve_get_frame(c, frame);
	case TIDE_CHANNEL_LANE:
		return tide_serve_lane_frame(c, frame);
	default:
		return tide_serve_put(c, frame, scratch);
	}
}

/*
 * Ends a connection on which nothing has come for long, or looks again when that may be
 * so: a timer for each frame would be set and stopped for each get.
 */
static void tide_silence(struct work_struct *work)
{
	struct tide_connection *c = container_of(to_delayed_work(work),
						 struct tide_connection, deadline);
	unsigned long since = READ_ONCE(c->waits), most = msecs_to_jiffies(TIDE_SILENCE_MS);
	unsigned long waited = since ? jiffies - since : 0;

	if (waited >= most)
		tide_shut(c);
	else
		queue_delayed_work(tide_get_queue, &c->deadline, most - waited);
}

/* A borrower pings on each but the PUT channel, which ends with the others. */
static void tide_watch_silence(struct tide_connection *c)
{
	INIT_DELAYED_WORK(&c->deadline, tide_silence);
	if (c->channel != TIDE_CHANNEL_PUT)
		queue_delayed_work(tide_get_queue, &c->deadline,
				   msecs_to_jiffies(TIDE_SILENCE_MS));
}

static int tide_next_frame(struct tide_connection *c, struct tide_frame *frame)
{
	int err;

	WRITE_ONCE(c->waits, jiffies ?: 1);
	err = tide_wire_recv_head(c->wire, frame, KTIME_MAX);
	WRITE_ONCE(c->waits, 0);
	return err;
}

/**
 * tide_serve_session() - serve a connection until it ends
 * @c: attached to its borrower
 *
 * Context: a work item of its own.
 */
void tide_serve_session(struct tide_connection *c)
{
	bool get = c->channel == TIDE_CHANNEL_GET;
	bool put = c->channel == TIDE_CHANNEL_PUT;
	struct page *scratch = put ? alloc_page(GFP_KERNEL) : NULL;
	struct tide_frame frame;
	int err = put && !scratch ? -ENOMEM : 0;

	if (!get)	/* else with its grant, which somebody may be sending already */
		c->greeted = true;
	c->vital = c->channel != TIDE_CHANNEL_LANE;
	if (!err && get)
		err = tide_send_grant(c->borrower);
	if (!err && get)
		tide_tell(c->borrower, 0);	/* what has gone meanwhile */
	tide_watch_silence(c);
	while (!err) {
		err = tide_next_frame(c, &frame);
		if (!err)
			err = tide_serve_frame(c, &frame, scratch);
	}
	cancel_delayed_work_sync(&c->deadline);
	if (scratch)
		__free_page(scratch);
	if (err == -EPROTO || err == -EBADMSG) {
		c->vital = true;
		atomic64_inc(&c->borrower->stats.bad_frames);
		pr_warn_ratelimited("borrowers/%s: %s frame, connection closed\n",
				    c->borrower->name, err == -EPROTO ? "malformed" : "forged");
	}
}
