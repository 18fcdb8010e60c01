// SPDX-License-Identifier: GPL-2.0-only
/*
 * The way of a request (Puma, section 3.3.1): sent, answered, late or lost.
 * Requests are asynchronous: readers go on as their pages arrive. What does not
 * arrive in time, or in the version that the catalog names, the front end gets
 * from elsewhere, from disk mostly, so a reader never sees an error of the pool.
 *
 * A request belongs to whoever takes it off its lane's lists: the receiving
 * thread, the deadline, or the end of the connection.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/highmem.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/crypto.h"
#include "base/histogram.h"
#include "base/outcome.h"
#include "base/trace.h"
#include "borrower/breaker.h"
#include "borrower/catalog_pages.h"
#include "borrower/catalog_table.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"
#include "borrower/lane.h"
#include "borrower/object.h"
#include "borrower/outbox.h"
#include "borrower/peer.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_ARRIVE		16	/* pages received before readers go on */

/* ------------------------------------------------------------------ */
/* the end of a request						       */
/* ------------------------------------------------------------------ */

/**
 * tide_get_free() - drop a request of which no page is left
 * @get: on no list
 */
void tide_get_free(struct tide_get *get)
{
	struct tide_lender *lender = get->lender;

	tide_object_put(get->object);
	get->ops->free(get);
	tide_lender_put(lender);
}
EXPORT_SYMBOL_GPL(tide_get_free);

static void tide_trace_get(const struct tide_get *get, pgoff_t index, unsigned int pages,
			   enum tide_got how)
{
	if (trace_tidepool_get_enabled())
		trace_tidepool_get(get->object->dev, get->object->number, index, pages,
				   get->lender->name, how,
				   ktime_us_delta(ktime_get(), get->start));
}

static u64 tide_get_age(const struct tide_get *get)
{
	return ktime_to_ns(ktime_sub(ktime_get(), get->start));
}

static u64 tide_get_deadline_ns(const struct tide_get *get)
{
	return (u64)READ_ONCE(get->lender->config.deadline_us) * NSEC_PER_USEC;
}

/* The breaker wants to know how long a request took until its last page came. */
static void tide_get_measured(const struct tide_get *get)
{
	tide_breaker_got(get->lender, get->size, tide_get_age(get));
}

/* Or until it was given up; one that was lost soon is no quick one. */
static void tide_get_measured_failed(const struct tide_get *get)
{
	tide_breaker_got(get->lender, get->size,
			 max(tide_get_age(get), tide_get_deadline_ns(get)));
}

/* Hands pages [@from, @to) over, if all of them have arrived. */
static void tide_get_hand_over(struct tide_get *get, unsigned int from, unsigned int to)
{
	bool arrived = true;
	unsigned int i;

	for (i = from; i < to; i++)
		arrived &= get->page[i].arrived;
	if (!arrived)
		return;
	get->hit = true;
	tide_histogram_add(&get->lender->get_latency, tide_get_age(get));
	atomic64_add(to - from, &get->lender->stats.get_hits);
	tide_trace_get(get, get->page[from].index, to - from, TIDE_GOT_HIT);
	get->ops->arrived(get, from, to);
	for (i = from; i < to; i++)
		get->page[i].page = NULL;
}

/*
 * Hands over what is complete among pages [@from, @to); those that only do
 * together with pages beyond @to are left for the next call. Returns where that
 * starts.
 */
static unsigned int tide_get_complete(struct tide_get *get, unsigned int from,
				      unsigned int to)
{
	unsigned int i = from, next;

	while (i < to) {
		next = tide_get_next(get, i);
		if (next > to)
			break;
		tide_get_hand_over(get, i, next);
		i = next;
	}
	return i;
}

static void tide_get_fall_back(struct work_struct *work)
{
	struct tide_get *get = container_of(work, struct tide_get, work);

	get->ops->fall_back(get);
	tide_get_free(get);
}

static unsigned int tide_get_left(const struct tide_get *get)
{
	unsigned int i, left = 0;

	for (i = 0; i < get->count; i++)
		left += !!get->page[i].page;
	return left;
}

/* Has a page not come? One that came and is not what was put is counted already. */
static bool tide_page_lacks(const struct tide_get_page *p)
{
	return p->page && !p->arrived && !p->corrupt;
}

static void tide_get_count_lacking(struct tide_get *get, enum tide_got how)
{
	struct tide_lender_stats *stats = &get->lender->stats;
	unsigned int i, lacking = 0;

	for (i = 0; i < get->count; i++)
		lacking += tide_page_lacks(&get->page[i]);
	atomic64_add(lacking, how == TIDE_GOT_LATE ? &stats->get_late :
						     &stats->get_errors);
	tide_get_measured_failed(get);
	tide_trace_get(get, get->page[0].index, lacking, how);
}

/* Pages that came, and are read from disk with others that only do together with them. */
static void tide_get_count_incomplete(struct tide_get *get)
{
	unsigned int i;

	for (i = 0; i < get->count; i++) {
		const struct tide_get_page *p = &get->page[i];

		if (!p->page || !p->arrived)
			continue;
		atomic64_inc(&get->lender->stats.get_incomplete);
		tide_trace_get(get, p->index, 1, TIDE_GOT_INCOMPLETE);
	}
}

/* Ends a request that its caller has taken off the lists. */
static void tide_get_end(struct tide_get *get)
{
	if (!tide_get_left(get)) {
		tide_get_free(get);
		return;
	}
	tide_get_count_incomplete(get);
	INIT_WORK(&get->work, tide_get_fall_back);
	queue_work(tide_disk_queue, &get->work);
}

/* ------------------------------------------------------------------ */
/* the beginning of one						       */
/* ------------------------------------------------------------------ */

/**
 * tide_get_begin() - a request without a page
 * @get: with room for @most
 * @ops: what becomes of its pages
 * @lender: that is asked; the reference is the request's from here on
 * @object: whose pages they are
 * @size: of the read that it is part of
 * @most: pages that there may be
 *
 * Context: any.
 */
void tide_get_begin(struct tide_get *get, const struct tide_get_ops *ops,
		    struct tide_lender *lender, struct tide_object *object,
		    enum tide_size size, unsigned int most)
{
	tide_object_hold(object);
	get->ops = ops;
	get->lender = lender;
	get->object = object;
	get->start = ktime_get();
	get->size = size;
	get->hit = false;
	get->receiving = false;
	/* What leaves a lender that takes nothing would not come back to it. */
	get->exclusive = lender->config.strategy == TIDE_EXCLUSIVE && !READ_ONCE(lender->held);
	get->most = most;
	get->count = 0;
}
EXPORT_SYMBOL_GPL(tide_get_begin);

/**
 * tide_get_add() - ask for one more page
 * @get: with room for it; its object is locked
 * @page: where it goes
 * @index: which one it is
 * @version: that the lender has
 *
 * Context: any.
 */
void tide_get_add(struct tide_get *get, struct page *page, pgoff_t index, u64 version)
{
	get->page[get->count++] = (struct tide_get_page) {
		.page = page,
		.index = index,
		.version = version,
	};
	if (get->exclusive)
		tide_object_erase_locked(get->object, index, version);
}
EXPORT_SYMBOL_GPL(tide_get_add);

/**
 * tide_get_copied() - count pages that only do together with some of a request
 * @get: the request; its lender's they are, for all that is counted
 * @index: of the first page of what they are part of
 * @pages: how many were in buffers
 * @how: TIDE_GOT_BUFFER: the others came; TIDE_GOT_INCOMPLETE: one did not
 *
 * Context: any.
 */
void tide_get_copied(struct tide_get *get, pgoff_t index, unsigned int pages,
		     enum tide_got how)
{
	struct tide_lender_stats *stats = &get->lender->stats;

	if (how == TIDE_GOT_BUFFER) {
		atomic64_add(pages, &stats->get_hits);
		atomic64_add(pages, &stats->get_hits_buffer);
	} else {
		atomic64_add(pages, &stats->get_incomplete);
	}
	tide_trace_get(get, index, pages, how);
}
EXPORT_SYMBOL_GPL(tide_get_copied);

/**
 * tide_get_submit() - hand a request over
 * @get: with at least one page
 *
 * It may be over, and freed, before this returns.
 *
 * Context: process; does not wait for the network.
 */
void tide_get_submit(struct tide_get *get)
{
	struct tide_lender *lender = get->lender;
	struct tide_lane *lane = tide_lane_choose(lender);
	bool accepted;

	kref_get(&lender->kref);
	get->lane = lane;
	spin_lock_irq(&lane->pending_lock);
	accepted = lane->accepting && get->count <= lender->agreed.get;
	if (accepted) {
		get->id = ++lane->next_id;
		list_add_tail(&get->list, &lane->unsent);
		WRITE_ONCE(lane->load, lane->load + get->count);
		queue_delayed_work(tide_disk_queue, &lane->deadline,
				   usecs_to_jiffies(lender->config.deadline_us) + 1);
	}
	spin_unlock_irq(&lane->pending_lock);
	if (!accepted) {
		tide_get_count_lacking(get, TIDE_GOT_ERROR);
		tide_get_end(get);
	} else if (current->flags & (PF_MEMALLOC | PF_MEMALLOC_NOIO)) {
		queue_work(tide_disk_queue, &lane->tx_work);	/* must not wait */
	} else {
		tide_get_pump(lane, MSG_DONTWAIT);
	}
	tide_lender_put(lender);
}
EXPORT_SYMBOL_GPL(tide_get_submit);

/* ------------------------------------------------------------------ */
/* receiving							       */
/* ------------------------------------------------------------------ */

static struct tide_get *tide_get_claim(struct tide_lane *lane, u64 id)
{
	struct tide_get *get, *found = NULL;

	spin_lock_irq(&lane->pending_lock);
	list_for_each_entry(get, &lane->pending, list) {
		if (get->id == id) {
			get->receiving = true;
			found = get;
			break;
		}
	}
	spin_unlock_irq(&lane->pending_lock);
	return found;
}

static void tide_get_unlist(struct tide_get *get)
{
	struct tide_lane *lane = get->lane;

	spin_lock_irq(&lane->pending_lock);
	list_del(&get->list);
	WRITE_ONCE(lane->load, lane->load - get->count);
	spin_unlock_irq(&lane->pending_lock);
}

/* Where page @i of a reply goes: to the reader, if it is what he asked for. */
static struct page *tide_data_target(struct tide_lane *lane,
				     struct tide_get *get, unsigned int i)
{
	if (get && le64_to_cpu(lane->rx_item[i].version) == get->page[i].version) {
		get->page[i].arrived = true;
		return get->page[i].page;
	}
	return lane->scratch;
}

/* When the reader goes to the disk, or the connection ends, whichever is first. */
static ktime_t tide_data_until(const struct tide_lane *lane, const struct tide_get *get)
{
	ktime_t deadline;

	if (!get)
		return lane->rx_until;
	deadline = ktime_add_ns(get->start, tide_get_deadline_ns(get));
	return ktime_before(deadline, lane->rx_until) ? deadline : lane->rx_until;
}

/* Of the pages [@from, @to) of a reply only the first @whole came. */
static void tide_data_cut(struct tide_get *get, unsigned int from, unsigned int to,
			  unsigned int whole)
{
	unsigned int i;

	for (i = from; i < to; i++) {
		if (!get->lane->rx_item[i].version)
			continue;
		if (whole)
			whole--;
		else
			get->page[i].arrived = false;
	}
}

/*
 * Receives up to TIDE_ARRIVE pages; *@i goes on to the first one not seen.
 * -ETIME: the rest is too late for the reader; *@rest bytes of this chunk are
 * still to come. What has come by then is his.
 */
static int tide_data_chunk(struct tide_lane *lane, struct tide_get *get,
			   unsigned int count, unsigned int *i, size_t *rest)
{
	struct bio_vec bvec[TIDE_ARRIVE];
	unsigned int from = *i, n = 0;
	struct iov_iter iter;
	int err;

	for (; *i < count && n < TIDE_ARRIVE; (*i)++) {
		if (!lane->rx_item[*i].version)
			continue;
		bvec[n++] = (struct bio_vec) {
			.bv_page = tide_data_target(lane, get, *i),
			.bv_len = PAGE_SIZE,
		};
	}
	iov_iter_bvec(&iter, ITER_DEST, bvec, n, n << PAGE_SHIFT);
	err = tide_wire_recv_iter(lane->link.wire, &iter, tide_data_until(lane, get));
	*rest = iov_iter_count(&iter);
	if (err && get)
		tide_data_cut(get, from, *i, ((n << PAGE_SHIFT) - *rest) >> PAGE_SHIFT);
	return err == -EAGAIN && !tide_lane_silent(lane) ? -ETIME : err;
}

/* Receives bytes that nobody waits for. */
static int tide_data_discard(struct tide_lane *lane, size_t bytes)
{
	int err = 0;

	while (bytes && !err) {
		size_t n = min_t(size_t, bytes, PAGE_SIZE);

		err = tide_lane_recv(lane, page_address(lane->scratch), n);
		bytes -= n;
	}
	return err;
}

/* Drops the catalog entries of pages that the lender does not have. */
static void tide_data_missed(struct tide_get *get)
{
	unsigned int i;

	for (i = 0; i < get->count; i++) {
		struct tide_get_page *p = &get->page[i];

		if (!tide_page_lacks(p))
			continue;
		atomic64_inc(&get->lender->stats.get_misses);
		tide_trace_get(get, p->index, 1, TIDE_GOT_MISS);
		tide_object_erase(get->object, p->index, p->version);
	}
}

/* Decrypts a page that has arrived; one that is not what was put has not. */
static void tide_data_decrypt(struct tide_get *get, unsigned int i)
{
	struct tide_lender *lender = get->lender;
	struct tide_get_page *p = &get->page[i];
	struct tide_page_id id = {
		.file = cpu_to_le64(get->object->id),
		.index = cpu_to_le64(p->index),
		.version = cpu_to_le64(p->version),
	};
	struct tide_cipher *cipher;

	cipher = tide_epoch_cipher(&lender->epochs, p->version);
	if (cipher && !tide_decrypt(cipher, get->lane->number, &id, p->page,
				    get->lane->rx_item[i].tag))
		return;
	p->arrived = false;
	if (!cipher)		/* of an epoch that is over: as good as a miss */
		return;
	p->corrupt = true;
	atomic64_inc(&lender->stats.get_corrupt);
	tide_trace_get(get, p->index, 1, TIDE_GOT_CORRUPT);
	pr_warn_ratelimited("lenders/%s: a page came back that is not what was put there\n",
			    lender->name);
	tide_object_erase(get->object, p->index, p->version);
}

/*
 * Lets the readers of pages [@from, @to) go on, each as soon as all that
 * it needs is decrypted; those before @done are. Returns as tide_get_complete().
 */
static unsigned int tide_data_arrived(struct tide_get *get, unsigned int done,
				      unsigned int from, unsigned int to)
{
	unsigned int i;

	if (get->lender->config.encryption == TIDE_NO_ENCRYPTION)
		return tide_get_complete(get, done, to);
	for (i = from; i < to; i++) {
		if (get->page[i].arrived)
			tide_data_decrypt(get, i);
		if (i + 1 == to || get->page[i].last)
			done = tide_get_complete(get, done, i + 1);
	}
	return done;
}

/* Ends a request that is late or lost; what is left is read from disk. */
static void tide_get_fail(struct tide_get *get, enum tide_got how)
{
	tide_get_unlist(get);
	tide_get_count_lacking(get, how);
	tide_get_end(get);
}

/*
 * Receives the pages of a reply into their folios, or into nothing. The
 * request is over when this returns.
 */
static int tide_data_pages(struct tide_lane *lane, struct tide_get *get, unsigned int count)
{
	unsigned int i = 0, from, done = 0;
	size_t rest;
	int err = 0;

	while (i < count && !err) {
		from = i;
		err = tide_data_chunk(lane, get, count, &i, &rest);
		if (get)
			done = tide_data_arrived(get, done, from, i);
		if (err && get) {
			tide_get_fail(get, err == -ETIME ? TIDE_GOT_LATE :
							   TIDE_GOT_ERROR);
			get = NULL;
		}
		if (err == -ETIME) {
			tide_lane_late(lane);
			err = tide_data_discard(lane, rest);
		}
	}
	if (get) {
		tide_get_unlist(get);
		if (get->hit)
			tide_get_measured(get);
		tide_data_missed(get);
		tide_get_end(get);
	}
	return err;
}

/**
 * tide_get_data() - receive the reply to a request
 * @lane: on which it comes
 * @frame: its header
 *
 * A reply that nobody waits for any more is received and thrown away.
 *
 * Context: its receiving thread.
 * Return: 0, or a negative errno that ends the connection.
 */
int tide_get_data(struct tide_lane *lane, const struct tide_frame *frame)
{
	unsigned int i, hits = 0, count = le16_to_cpu(frame->count);
	size_t items = count * sizeof(lane->rx_item[0]);
	struct tide_get *get;
	int err;

	if (!count || count > lane->lender->agreed.get ||
	    le32_to_cpu(frame->length) < items + TIDE_TAG_SIZE)
		return -EPROTO;
	err = tide_lane_metadata(lane, frame, items);
	if (err)
		return err;
	for (i = 0; i < count; i++)
		hits += !!lane->rx_item[i].version;
	if (le32_to_cpu(frame->length) != items + TIDE_TAG_SIZE + (hits << PAGE_SHIFT))
		return -EPROTO;

	get = tide_get_claim(lane, le64_to_cpu(frame->id));
	if (get && get->count != count) {
		tide_get_fail(get, TIDE_GOT_ERROR);
		return -EPROTO;
	}
	return tide_data_pages(lane, get, count);
}

/* ------------------------------------------------------------------ */
/* deadline and end						       */
/* ------------------------------------------------------------------ */

/*
 * Takes the requests that are due off a list. One whose pages are arriving is
 * the receiving thread's, which watches the time itself.
 */
static void tide_take_late(struct tide_lane *lane, struct list_head *from,
			   struct list_head *late)
{
	ktime_t now = ktime_get();
	struct tide_get *get, *next;

	list_for_each_entry_safe(get, next, from, list) {
		if (get->receiving ||
		    ktime_us_delta(now, get->start) < lane->lender->config.deadline_us)
			continue;
		list_move_tail(&get->list, late);
		WRITE_ONCE(lane->load, lane->load - get->count);
	}
}

static void tide_end_all(struct list_head *gets, enum tide_got how)
{
	struct tide_get *get, *next;

	list_for_each_entry_safe(get, next, gets, list) {
		list_del(&get->list);
		tide_get_count_lacking(get, how);
		tide_get_end(get);
	}
}

/**
 * tide_get_deadline() - read from disk what the lender did not send in time
 * @work: lane->deadline
 *
 * Until something comes from the lender again nothing more is asked of it.
 */
static void tide_get_deadline(struct work_struct *work)
{
	struct tide_lane *lane = container_of(to_delayed_work(work), struct tide_lane, deadline);
	LIST_HEAD(late);
	bool more;

	spin_lock_irq(&lane->pending_lock);
	tide_take_late(lane, &lane->pending, &late);
	tide_take_late(lane, &lane->unsent, &late);
	more = !list_empty(&lane->pending) || !list_empty(&lane->unsent);
	if (more)
		queue_delayed_work(tide_disk_queue, &lane->deadline,
				   usecs_to_jiffies(lane->lender->config.deadline_us) / 4 + 1);
	spin_unlock_irq(&lane->pending_lock);
	if (!list_empty(&late))
		tide_lane_late(lane);
	tide_end_all(&late, TIDE_GOT_LATE);
}

/**
 * tide_get_hasten() - go by another deadline from now on
 * @lender: its configuration has changed
 *
 * Context: process.
 */
void tide_get_hasten(struct tide_lender *lender)
{
	struct tide_lane *lane;
	unsigned int i;

	for (i = 0; i < lender->lanes; i++) {
		lane = &lender->lane[i];
		spin_lock_irq(&lane->pending_lock);
		if (lane->accepting)
			mod_delayed_work(tide_disk_queue, &lane->deadline, 0);
		spin_unlock_irq(&lane->pending_lock);
	}
}

/**
 * tide_get_abort() - the connection is over: read everything from disk
 * @lane: nobody receives on it
 *
 * Context: process. Afterwards no request is accepted.
 */
void tide_get_abort(struct tide_lane *lane)
{
	LIST_HEAD(lost);

	spin_lock_irq(&lane->pending_lock);
	WRITE_ONCE(lane->accepting, false);
	WRITE_ONCE(lane->load, 0);
	list_splice_init(&lane->pending, &lost);
	list_splice_tail_init(&lane->unsent, &lost);
	spin_unlock_irq(&lane->pending_lock);
	tide_end_all(&lost, TIDE_GOT_ERROR);
}

/**
 * tide_get_prepare() - allocate what requests on a lane need
 * @lane: being created
 *
 * Return: 0 or -ENOMEM; what was allocated is freed by tide_get_release().
 */
int tide_get_prepare(struct tide_lane *lane)
{
	int err = tide_tx_prepare(lane);

	spin_lock_init(&lane->pending_lock);
	INIT_LIST_HEAD(&lane->unsent);
	INIT_LIST_HEAD(&lane->pending);
	INIT_DELAYED_WORK(&lane->deadline, tide_get_deadline);
	lane->rx_item = kvcalloc(TIDE_GET_MAX + 1, sizeof(*lane->rx_item), GFP_KERNEL);
	lane->scratch = alloc_page(GFP_KERNEL);
	return lane->rx_item && lane->scratch ? err : -ENOMEM;
}

void tide_get_release(struct tide_lane *lane)
{
	tide_tx_release(lane);
	kvfree(lane->rx_item);
	if (lane->scratch)
		__free_page(lane->scratch);
}
