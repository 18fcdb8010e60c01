// SPDX-License-Identifier: GPL-2.0-only
/*
 * The put path (Puma, sections 3.2 and 3.3.1). An evicted page is copied into
 * a preallocated buffer with interrupts off; nothing is allocated there and
 * nothing waits. A thread for each lender aggregates what has come together
 * into one PUT, records the pages in the catalog and sends them. A buffer is
 * kept until the lender has acknowledged its page, and until then a get of
 * that page is served from it (the paper's busy bit, section 3.4.3).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "base/crypto.h"
#include "base/histogram.h"
#include "base/outcome.h"
#include "base/stats.h"
#include "base/trace.h"
#include "borrower/breaker_state.h"
#include "borrower/buffers.h"
#include "borrower/catalog.h"
#include "borrower/catalog_ages.h"
#include "borrower/catalog_pages.h"
#include "borrower/forgets.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/send_pages.h"
#include "borrower/peer.h"
#include "borrower/versions.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_BATCHES	32	/* unacknowledged PUTs for each lender */
#define TIDE_ACK_MS	15000	/* a lender that keeps its word on pages for longer is left */
#define TIDE_FEW	16	/* fewer queued pages than this may wait a little */

/* ------------------------------------------------------------------ */
/* into a buffer						       */
/* ------------------------------------------------------------------ */

/*
 * Room for more pages. Who has half of all buffers, waiting to be sent or for its word,
 * comes after all others. Each of them holds a reference, and hardly anything else does.
 */
static s64 tide_put_room(const struct tide_lender *lender)
{
	unsigned int held = kref_read(&lender->kref), buffers, unused;
	s64 room = tide_ages_limit(lender) - atomic64_read(&lender->catalog_pages) -
		   READ_ONCE(lender->put_queued);

	tide_buffers_count(&buffers, &unused);
	return held > buffers / 2 ? S64_MIN + U32_MAX - held : room;
}

/**
 * tide_choose_lender() - the usable lender with most room
 * @only: the name of the one that will do, or NULL
 * @what: TIDE_SEQUENTIAL, TIDE_DISKLESS, or both
 * @why: without a lender, set to what keeps it away, if something does
 *
 * Full ones recycle their oldest pages.
 *
 * Context: any, in an RCU read section.
 * Return: the lender, or NULL.
 */
struct tide_lender *tide_choose_lender(const char *only, unsigned int what,
				       struct tide_refusal *why)
{
	struct tide_lender *lender, *best = NULL;
	s64 room, most = S64_MIN;
	int slot;

	for (slot = 0; slot < TIDE_MAX_LENDERS; slot++) {
		lender = rcu_dereference(tide_lenders[slot]);
		if (!tide_lender_usable(lender) || !READ_ONCE(lender->granted_pages))
			continue;
		if (only && strcmp(only, lender->name))
			continue;
		if (tide_lender_avoided(lender, what & TIDE_DISKLESS)) {
			*why = (struct tide_refusal) {
				&lender->refused->drop_breaker, TIDE_DROP_BREAKER,
			};
			continue;
		}
		if (READ_ONCE(lender->held)) {
			*why = (struct tide_refusal) {
				&lender->refused->drop_held, TIDE_DROP_HELD,
			};
			continue;
		}
		if (what & TIDE_SEQUENTIAL && READ_ONCE(lender->filtering)) {
			*why = (struct tide_refusal) {
				&lender->refused->drop_sequential, TIDE_DROP_SEQUENTIAL,
			};
			continue;
		}
		room = tide_put_room(lender);
		if (room > most) {
			most = room;
			best = lender;
		}
	}
	return best;
}
EXPORT_SYMBOL_GPL(tide_choose_lender);

static bool tide_queue(struct tide_lender *lender, struct tide_buffer *buffer)
{
	unsigned long flags;
	bool queued = false;

	spin_lock_irqsave(&lender->put_lock, flags);
	if (lender->ready && kref_get_unless_zero(&lender->kref)) {
		buffer->version = tide_next_version();	/* of this connection's epoch */
		list_add_tail(&buffer->list, &lender->put_queue);
		WRITE_ONCE(lender->put_queued, lender->put_queued + 1);
		queued = true;
	}
	spin_unlock_irqrestore(&lender->put_lock, flags);
	return queued;
}

static void tide_trace_drop(const struct tide_object *object, pgoff_t index,
			    enum tide_drop_reason reason)
{
	trace_tidepool_drop(object->dev, object->number, index, 1, reason);
}

/**
 * tide_put_filled() - a buffer that holds a page goes to a lender
 * @object: whose page it is, locked
 * @lender: chosen in this RCU read section
 * @index: page index
 * @buffer: filled
 *
 * Context: any; allocates nothing.
 * Return: false when the page is in no buffer and at no lender afterwards.
 */
bool tide_put_filled(struct tide_object *object, struct tide_lender *lender, pgoff_t index,
		     struct tide_buffer *buffer)
{
	buffer->object = object;
	buffer->lender = lender;
	buffer->index = index;
	if (!tide_queue(lender, buffer)) {
		tide_count(drop_notready);
		tide_trace_drop(object, index, TIDE_DROP_NOTREADY);
		buffer->object = NULL;
		buffer->lender = NULL;
		tide_buffer_free(buffer);
		return false;
	}
	tide_object_hold(object);
	tide_outgoing_insert(object, buffer);
	trace_tidepool_put(object->dev, object->number, index, buffer->version, lender->name);
	return true;
}
EXPORT_SYMBOL_GPL(tide_put_filled);

/**
 * tide_put_page() - copy a page that is to go to a lender
 * @object: whose page it is, locked
 * @lender: chosen in this RCU read section
 * @page: as the disk has it
 * @index: page index
 * @buffer: taken, for this page
 *
 * Context: any; allocates nothing.
 * Return: false when the page is in no buffer and at no lender afterwards.
 */
bool tide_put_page(struct tide_object *object, struct tide_lender *lender,
		   struct page *page, pgoff_t index, struct tide_buffer *buffer)
{
	copy_highpage(buffer->page, page);
	return tide_put_filled(object, lender, index, buffer);
}
EXPORT_SYMBOL_GPL(tide_put_page);

/**
 * tide_pool_lacks() - does the pool lack a page, or has it changed since?
 * @object: the object, locked
 * @index: page index
 */
bool tide_pool_lacks(struct tide_object *object, pgoff_t index)
{
	int slot;

	return !tide_outgoing_find(object, index) &&
	       !tide_object_version(object, index, &slot);
}
EXPORT_SYMBOL_GPL(tide_pool_lacks);

/* ------------------------------------------------------------------ */
/* the sending thread						       */
/* ------------------------------------------------------------------ */

static bool tide_buffer_live(void *arg)
{
	struct tide_buffer *buffer = arg;

	return buffer->live && !buffer->object->dead;
}

static void tide_buffer_discard(struct tide_buffer *buffer)
{
	unsigned long flags;

	tide_object_lock(buffer->object, flags);
	tide_outgoing_remove(buffer);
	tide_object_erase_locked(buffer->object, buffer->index, buffer->version);
	tide_object_unlock(buffer->object, flags);
	tide_buffer_release(buffer);
}

/* Records a page in the catalog before it leaves; false: it is not sent. */
static bool tide_buffer_record(struct tide_lender *lender, struct tide_buffer *buffer)
{
	int err;

	tide_catalog_sweep_if_due();
	err = tide_object_record(buffer->object, buffer->index, buffer->version,
				 lender->slot, tide_buffer_live, buffer);
	if (!err)
		return true;
	if (err == -ESTALE)
		atomic64_inc(&lender->stats.drop_stale);
	else
		atomic64_inc(&lender->stats.drop_nomem);
	tide_trace_drop(buffer->object, buffer->index,
			err == -ESTALE ? TIDE_DROP_STALE : TIDE_DROP_NOMEM);
	tide_buffer_discard(buffer);
	return false;
}

static struct tide_buffer *tide_dequeue(struct tide_lender *lender)
{
	struct tide_buffer *buffer;

	spin_lock_irq(&lender->put_lock);
	buffer = list_first_entry_or_null(&lender->put_queue, struct tide_buffer, list);
	if (buffer) {
		list_del_init(&buffer->list);
		WRITE_ONCE(lender->put_queued, lender->put_queued - 1);
	}
	spin_unlock_irq(&lender->put_lock);
	return buffer;
}

static void tide_batch_fill(struct tide_lender *lender, struct tide_batch *batch)
{
	struct tide_buffer *buffer;

	batch->count = 0;
	while (batch->count < lender->agreed.put && (buffer = tide_dequeue(lender)))
		if (tide_buffer_record(lender, buffer))
			batch->buffer[batch->count++] = buffer;
}

/*
 * Prepares page @i of a PUT. It is encrypted into a page of its own, for gets
 * are served from the buffer; that page is free again when the socket has
 * taken its bytes, which it copies.
 */
static int tide_batch_page(struct tide_lender *lender, struct tide_buffer *buffer,
			   unsigned int i)
{
	struct tide_put_item *item = &lender->put_head->item[i];
	struct page *page = buffer->page;
	int err = 0;

	*item = (struct tide_put_item) {
		.id.file = cpu_to_le64(buffer->object->id),
		.id.index = cpu_to_le64(buffer->index),
		.id.version = cpu_to_le64(buffer->version),
	};
	if (lender->config.encryption == TIDE_AES_GCM) {
		page = lender->put_sealed[i];
		err = tide_encrypt(lender->put_cipher, &item->id, buffer->page,
				   page, item->tag);
	}
	lender->put_bvec[TIDE_HEAD_PARTS + i] = (struct bio_vec) {
		.bv_page = page,
		.bv_len = PAGE_SIZE,
	};
	return err;
}

static size_t tide_batch_bytes(const struct tide_batch *batch)
{
	return sizeof(struct tide_frame) + TIDE_TAG_SIZE +
	       batch->count * (sizeof(struct tide_put_item) + PAGE_SIZE);
}

static int tide_batch_send(struct tide_lender *lender, struct tide_batch *batch)
{
	struct tide_put_head *head = lender->put_head;
	size_t items = batch->count * sizeof(head->item[0]);
	unsigned int i;
	int ret = 0;

	head->frame = (struct tide_frame) {
		.length = cpu_to_le32(items + TIDE_TAG_SIZE + (batch->count << PAGE_SHIFT)),
		.type = TIDE_PUT,
		.count = cpu_to_le16(batch->count),
		.id = cpu_to_le64(batch->id),
	};
	tide_cipher_salt(lender->put_cipher);
	for (i = 0; i < batch->count && !ret; i++)
		ret = tide_batch_page(lender, batch->buffer[i], i);
	if (!ret)
		ret = tide_frame_seal(lender->put.seal.send, &head->frame, head->item, items);
	return ret ?: tide_wire_send_frame(lender->put.wire, head,
					   sizeof(head->frame) + items + TIDE_TAG_SIZE,
					   lender->put_bvec, batch->count);
}

/*
 * Until then the lender's word on a batch may take: what is before it on the wire goes
 * first, and what was asked for may be before the answer.
 */
static ktime_t tide_batch_due(const struct tide_lender *lender, const struct tide_batch *batch)
{
	size_t before = tide_wire_outstanding(lender->put.wire) + tide_batch_bytes(batch);
	size_t data = (size_t)lender->agreed.get << PAGE_SHIFT;

	return ktime_add_ms(tide_wire_until(before + data), TIDE_ACK_MS);
}

static struct tide_batch *tide_batch_take(struct tide_lender *lender)
{
	struct tide_batch *batch = NULL;

	spin_lock_irq(&lender->put_lock);
	if (!list_empty(&lender->put_queue))
		batch = list_first_entry_or_null(&lender->batches_free,
						 struct tide_batch, list);
	if (batch)
		list_del_init(&batch->list);
	spin_unlock_irq(&lender->put_lock);
	return batch;
}

static void tide_batch_move(struct tide_lender *lender, struct tide_batch *batch,
			    struct list_head *to)
{
	spin_lock_irq(&lender->put_lock);
	list_add_tail(&batch->list, to);
	spin_unlock_irq(&lender->put_lock);
}

static bool tide_sender_ready(struct tide_lender *lender)
{
	bool ready;

	spin_lock_irq(&lender->put_lock);
	ready = !list_empty(&lender->put_queue) && !list_empty(&lender->batches_free);
	spin_unlock_irq(&lender->put_lock);
	return ready;
}

/* The sender is through with a batch, and touches it no more. */
static void tide_batch_sent(struct tide_lender *lender, struct tide_batch *batch)
{
	spin_lock_irq(&lender->put_lock);
	WRITE_ONCE(batch->sending, false);
	spin_unlock_irq(&lender->put_lock);
	wake_up(&lender->put_wait);
}

static int tide_sender(void *arg)
{
	struct tide_lender *lender = arg;
	struct tide_batch *batch;
	int err = 0;

	while (!kthread_should_stop()) {
		wait_event_interruptible(lender->put_wait, kthread_should_stop() ||
					 (!err && tide_sender_ready(lender)));
		if (kthread_should_stop())
			break;
		if (READ_ONCE(lender->put_queued) < TIDE_FEW)	/* reclaim evicts in groups */
			usleep_range(500, 1500);
		batch = tide_batch_take(lender);
		if (!batch)
			continue;
		tide_batch_fill(lender, batch);
		if (!batch->count) {
			tide_batch_move(lender, batch, &lender->batches_free);
			continue;
		}
		batch->id = ++lender->put_id;
		atomic64_inc(&lender->stats.put_requests);
		atomic64_add(batch->count, &lender->stats.puts_sent);
		batch->sent = ktime_get();
		batch->due = tide_batch_due(lender, batch);
		batch->end = tide_wire_position(lender->put.wire) + tide_batch_bytes(batch);
		batch->sending = true;
		tide_batch_move(lender, batch, &lender->batches_sent);
		err = tide_batch_send(lender, batch);
		tide_batch_sent(lender, batch);
		if (err)
			tide_lender_break(lender);
	}
	return 0;
}

/**
 * tide_puts_overdue() - has a lender kept its word on pages for too long?
 * @lender: which has what was sent, while its buffers are kept for it
 *
 * Context: process.
 */
bool tide_puts_overdue(struct tide_lender *lender)
{
	const struct tide_batch *oldest;
	bool overdue;

	spin_lock_irq(&lender->put_lock);
	oldest = list_first_entry_or_null(&lender->batches_sent, struct tide_batch, list);
	overdue = oldest && ktime_after(ktime_get(), oldest->due);
	spin_unlock_irq(&lender->put_lock);
	return overdue;
}

/* The batch of this id; it stays where it is. */
static struct tide_batch *tide_batch_find_sent(struct tide_lender *lender, u64 id)
{
	struct tide_batch *batch, *found = NULL;

	spin_lock_irq(&lender->put_lock);
	list_for_each_entry(batch, &lender->batches_sent, list) {
		if (batch->id == id) {
			found = batch;
			break;
		}
	}
	spin_unlock_irq(&lender->put_lock);
	return found;
}

/*
 * The batch that is acknowledged, on no list and nobody else's; NULL: there is
 * none that the lender can have got whole. The last byte of one that it has is on
 * the wire while the sender may still be on its way back from the socket: that
 * takes a moment and waits for nobody.
 */
static struct tide_batch *tide_batch_take_sent(struct tide_lender *lender, u64 id,
					       unsigned int count)
{
	struct tide_batch *batch = tide_batch_find_sent(lender, id);

	if (!batch || batch->count != count ||
	    !tide_wire_passed(lender->put.wire, batch->end))
		return NULL;
	wait_event(lender->put_wait, !READ_ONCE(batch->sending));
	spin_lock_irq(&lender->put_lock);
	list_del_init(&batch->list);
	spin_unlock_irq(&lender->put_lock);
	return batch;
}

/*
 * The lender may have a page that is of no use. Where an index is used again another one
 * may be on its way, and it is left alone.
 */
static void tide_buffer_forget(struct tide_buffer *buffer)
{
	if (buffer->object->once)
		tide_forget(buffer->lender->slot, buffer->object, buffer->index, buffer->index);
}

/* The lender has it. If it was dropped on the way, the note on that may have been there first. */
static void tide_buffer_arrived(struct tide_buffer *buffer)
{
	struct tide_object *object = buffer->object;
	unsigned long flags;
	bool live;

	tide_object_lock(object, flags);
	live = buffer->live;
	tide_outgoing_remove(buffer);
	tide_object_unlock(object, flags);
	if (!live)
		tide_buffer_forget(buffer);
	tide_buffer_release(buffer);
}

/**
 * tide_put_acknowledged() - the lender has answered a batch
 * @lender: the lender
 * @id: of the batch
 * @count: of its pages
 * @stored: bit i: it keeps page i
 *
 * What was not sent whole cannot have arrived: nothing is freed while it is being
 * sent, whatever a lender says.
 *
 * Context: the receiving thread.
 * Return: 0, or -EPROTO when no such batch has been sent.
 */
int tide_put_acknowledged(struct tide_lender *lender, u64 id,
			  unsigned int count, u64 stored)
{
	struct tide_batch *batch = tide_batch_take_sent(lender, id, count);
	unsigned int i;

	if (!batch)
		return -EPROTO;
	tide_histogram_add(&lender->put_latency,
			   ktime_to_ns(ktime_sub(ktime_get(), batch->sent)));
	for (i = 0; i < count; i++) {
		struct tide_buffer *buffer = batch->buffer[i];

		if (!(stored & BIT_ULL(i))) {
			atomic64_inc(&lender->stats.drop_refused);
			tide_trace_drop(buffer->object, buffer->index, TIDE_DROP_REFUSED);
			tide_buffer_discard(buffer);
			continue;
		}
		atomic64_inc(&lender->stats.puts);
		tide_buffer_arrived(buffer);
	}
	tide_batch_move(lender, batch, &lender->batches_free);
	wake_up(&lender->put_wait);
	return 0;
}

/**
 * tide_sender_start() - start the sending thread of a lender just connected
 * @lender: the lender
 *
 * Context: the lender's main thread.
 * Return: 0 or a negative errno.
 */
int tide_sender_start(struct tide_lender *lender)
{
	struct task_struct *task = kthread_run(tide_sender, lender, "tidepool_put");

	if (IS_ERR(task))
		return PTR_ERR(task);
	lender->sender = task;
	return 0;
}

static void tide_buffer_lost(struct tide_buffer *buffer)
{
	atomic64_inc(&buffer->lender->stats.drop_lost);
	tide_trace_drop(buffer->object, buffer->index, TIDE_DROP_LOST);
	tide_buffer_discard(buffer);
}

/**
 * tide_sender_stop() - stop it and drop what is on its way
 * @lender: not ready any more, its sockets shut down
 *
 * Context: the lender's main thread.
 */
void tide_sender_stop(struct tide_lender *lender)
{
	struct tide_buffer *buffer;
	struct tide_batch *batch;
	unsigned int i;

	if (lender->sender)
		kthread_stop(lender->sender);
	lender->sender = NULL;
	while ((buffer = tide_dequeue(lender)))
		tide_buffer_lost(buffer);
	while ((batch = list_first_entry_or_null(&lender->batches_sent,
						 struct tide_batch, list))) {
		for (i = 0; i < batch->count; i++) {
			/* perhaps the answer is all that is lost */
			tide_buffer_forget(batch->buffer[i]);
			tide_buffer_lost(batch->buffer[i]);
		}
		list_move(&batch->list, &lender->batches_free);
	}
}

/**
 * tide_put_prepare() - allocate what the sending thread needs
 * @lender: being created
 *
 * Return: 0 or -ENOMEM; what was allocated is freed by tide_put_release().
 */
int tide_put_prepare(struct tide_lender *lender)
{
	unsigned int i;

	spin_lock_init(&lender->put_lock);
	INIT_LIST_HEAD(&lender->put_queue);
	INIT_LIST_HEAD(&lender->batches_free);
	INIT_LIST_HEAD(&lender->batches_sent);
	init_waitqueue_head(&lender->put_wait);
	lender->put_head = kmalloc(sizeof(*lender->put_head), GFP_KERNEL);
	lender->put_bvec = kmalloc_array(TIDE_HEAD_PARTS + TIDE_PUT_MAX, sizeof(struct bio_vec),
					 GFP_KERNEL);
	lender->batch_store = kvcalloc(TIDE_BATCHES, sizeof(*lender->batch_store),
				       GFP_KERNEL);
	lender->put_cipher = tide_cipher_create(1);
	lender->refused = alloc_percpu(struct tide_lender_refusals);
	if (!lender->put_head || !lender->put_bvec || !lender->batch_store ||
	    !lender->put_cipher || !lender->refused)
		return -ENOMEM;
	for (i = 0; i < TIDE_PUT_MAX; i++) {
		lender->put_sealed[i] = alloc_page(GFP_KERNEL);
		if (!lender->put_sealed[i])
			return -ENOMEM;
	}
	for (i = 0; i < TIDE_BATCHES; i++)
		list_add(&lender->batch_store[i].list, &lender->batches_free);
	lender->has_buffers = !tide_buffers_acquire();
	return lender->has_buffers ? 0 : -ENOMEM;
}

void tide_put_release(struct tide_lender *lender)
{
	unsigned int i;

	if (lender->has_buffers)
		tide_buffers_relinquish();
	for (i = 0; i < TIDE_PUT_MAX; i++)
		if (lender->put_sealed[i])
			__free_page(lender->put_sealed[i]);
	free_percpu(lender->refused);
	tide_cipher_free(lender->put_cipher);
	kfree(lender->put_head);
	kfree(lender->put_bvec);
	kvfree(lender->batch_store);
}
