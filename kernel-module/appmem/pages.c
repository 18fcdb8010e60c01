// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of an application's pool on their way to lenders and back. What is at an index
 * never changes: whatever is put gets indices that nothing had before. So a page that
 * comes is the right one, and a page that does not come is no more than missed.
 *
 * A value goes from the program's memory into outgoing buffers, and from a lender's
 * answer into the pages that it is copied to the program from: once each way.
 */
#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/jiffies.h>
#include <linux/kref.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "appmem/pages.h"
#include "borrower/breaker.h"
#include "borrower/buffers.h"
#include "borrower/catalog_pages.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"
#include "borrower/object.h"
#include "borrower/outgoing.h"
#include "borrower/peer.h"
#include "borrower/send_pages.h"

#define TIDE_BUFFER_TRIES	200	/* for a free buffer, */
#define TIDE_BUFFER_PAUSE_US	500	/* so far apart, or twice that */
#define TIDE_BUFFERS_LEFT	4	/* one in so many is for those who do not wait */
#define TIDE_FAULT_TRIES	16	/* for a program's page that memory is too short for */
#define TIDE_OFFER_JIFFIES	(HZ / 2)	/* for all pages that need not go out */
#define TIDE_READS_SPARE	256	/* with fewer reads one may begin that is given up */

static atomic_t tide_app_reads = ATOMIC_INIT(0);	/* that are under way, abandoned or not */
static DECLARE_WAIT_QUEUE_HEAD(tide_app_read_over);
static atomic64_t tide_app_hits = ATOMIC64_INIT(0);	/* pages that came, as lenders count them */

/* ------------------------------------------------------------------ */
/* to lenders							       */
/* ------------------------------------------------------------------ */

/**
 * struct tide_app_source - up to a page that is to go out
 * @page: that has it, or NULL
 * @from: where it is in the program's memory
 * @size: of that in bytes, a page at most
 */
struct tide_app_source {
	struct page *page;
	const void __user *from;
	size_t size;
};

/* Takes what is in memory; the rest of the page is zero. */
static int tide_app_copy_in(struct page *page, const void __user *from, size_t size)
{
	void *to = kmap_local_page(page);
	bool failed = true;

	if (access_ok(from, size)) {
		pagefault_disable();
		failed = __copy_from_user_inatomic(to, from, size);
		pagefault_enable();
	}
	memset(to + size, 0, PAGE_SIZE - size);
	kunmap_local(to);
	return failed ? -EFAULT : 0;
}

static int tide_app_source_copy(const struct tide_app_source *source, struct page *page)
{
	if (!source->page)
		return tide_app_copy_in(page, source->from, source->size);
	copy_highpage(page, source->page);
	return 0;
}

/* Some are left to evictions and blocks, which do not wait for one. */
static bool tide_app_buffers_spare(void)
{
	unsigned int total, idle;

	tide_buffers_count(&total, &idle);
	return idle > total / TIDE_BUFFERS_LEFT;
}

static struct tide_buffer *tide_app_buffer(void)
{
	struct tide_buffer *buffer;
	LIST_HEAD(taken);

	if (!tide_app_buffers_spare() || !tide_buffers_take(1, &taken))
		return NULL;
	buffer = list_first_entry(&taken, struct tide_buffer, list);
	list_del_init(&buffer->list);
	return buffer;
}

/* In the RCU read section in which the lender was chosen: it keeps the buffer's memory. */
static int tide_app_give(struct tide_object *object, struct tide_lender *lender, u64 index,
			 const struct tide_app_source *source)
{
	struct tide_buffer *buffer = tide_app_buffer();
	unsigned long flags;
	bool queued;
	int err;

	if (!buffer)
		return -ENOBUFS;
	err = tide_app_source_copy(source, buffer->page);
	if (err) {
		tide_buffer_free(buffer);
		return err;
	}
	tide_object_lock(object, flags);
	queued = tide_put_filled(object, lender, index, buffer);
	tide_object_unlock(object, flags);
	if (queued)
		wake_up(&lender->put_wait);
	return queued ? 0 : -ENOTCONN;
}

/*
 * A page goes to a lender, if there is a buffer for it, and if it is in memory: -EFAULT.
 * Nothing waits here. A buffer is held no longer, neither by a program whose page is slow
 * to come nor when the last lender goes, which takes the buffers along.
 */
static int tide_app_try(struct tide_object *object, u64 index,
			const struct tide_app_source *source)
{
	struct tide_refusal why = { };
	struct tide_lender *lender;
	int err = -ENOTCONN;

	rcu_read_lock();
	lender = tide_choose_lender(NULL, TIDE_DISKLESS, &why);
	if (lender)
		err = tide_app_give(object, lender, index, source);
	else if (why.counter)
		this_cpu_inc(*why.counter);
	rcu_read_unlock();
	return err;
}

/**
 * tide_app_buffer_await() - wait until there is a buffer to spare: lenders take pages
 *
 * Somebody else may take it.
 *
 * Context: process; waits for the network, for a fifth of a second at most.
 * Return: 0, -ENOTCONN when nobody takes pages, -EAGAIN when they take none in that
 * time, or -EINTR.
 */
int tide_app_buffer_await(void)
{
	unsigned int tries;

	for (tries = 0; tries < TIDE_BUFFER_TRIES; tries++) {
		if (signal_pending(current))
			return -EINTR;
		if (tide_app_buffers_spare())
			return 0;
		if (!tide_lenders_take_puts(true))
			return -ENOTCONN;
		usleep_range(TIDE_BUFFER_PAUSE_US, 2 * TIDE_BUFFER_PAUSE_US);
	}
	return -EAGAIN;
}

/* Brings a program's page into memory, from where it may be gone again when it is looked at. */
static int tide_app_fault_in(const struct tide_app_source *source, unsigned int *tries)
{
	if (fault_in_readable(source->from, source->size))
		return -EFAULT;
	if (signal_pending(current))
		return -EINTR;
	return ++*tries < TIDE_FAULT_TRIES ? 0 : -EAGAIN;
}

static int tide_app_page_write(struct tide_object *object, u64 index,
			       const struct tide_app_source *source, bool waits)
{
	unsigned int faults = 0;
	int err, wait = 0;

	do {
		err = tide_app_try(object, index, source);
		if (err == -ENOBUFS)
			wait = waits ? tide_app_buffer_await() : -EAGAIN;
		else if (err == -EFAULT)
			wait = tide_app_fault_in(source, &faults);
		else
			return err;
	} while (!wait);
	return wait;
}

/**
 * tide_app_pages_write() - hand a value to lenders
 * @object: of the pool
 * @first: index of its first page; none of its pages was ever used
 * @from: the value, in the program's memory
 * @size: of the value in bytes
 * @waits: for buffers; else there is none: -EAGAIN
 *
 * Context: process; waits for the program's pages.
 * Return: 0 or a negative errno, when the pool has nothing of it: -EFAULT, or see
 * tide_app_buffer_await().
 */
int tide_app_pages_write(struct tide_object *object, u64 first, const void __user *from,
			 size_t size, bool waits)
{
	u64 pages = DIV_ROUND_UP(size, PAGE_SIZE), i;
	int err = 0;

	for (i = 0; !err && i < pages; i++) {
		struct tide_app_source source = {
			.from = from + (i << PAGE_SHIFT),
			.size = min_t(size_t, size - (i << PAGE_SHIFT), PAGE_SIZE),
		};

		err = tide_app_page_write(object, first + i, &source, waits);
	}
	if (err)
		tide_object_drop(object, first, first + pages - 1);
	return err;
}

/**
 * tide_app_pages_offer() - hand pages to lenders, if they take all of them
 * @object: of the pool
 * @first: index of the first one; none was ever used
 * @pages: they are copied
 * @count: how many
 *
 * Who does not wait for lenders has them elsewhere, too. Some of them alone are of no use.
 *
 * Context: process; waits for buffers, for a second at most.
 */
void tide_app_pages_offer(struct tide_object *object, u64 first, struct page **pages,
			  unsigned int count)
{
	unsigned long end = jiffies + TIDE_OFFER_JIFFIES;
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct tide_app_source source = { .page = pages[i] };

		if (time_after(jiffies, end) ||
		    tide_app_page_write(object, first + i, &source, true))
			break;
	}
	if (i < count)
		tide_object_drop(object, first, first + count - 1);
}

/**
 * tide_app_page_try_put() - hand one page to a lender, if there is a buffer for it
 * @object: of the pool
 * @index: of the page; was never used
 * @page: it is copied
 *
 * Context: process; does not wait.
 * Return: 0, -ENOBUFS, or -ENOTCONN when no lender takes pages.
 */
int tide_app_page_try_put(struct tide_object *object, u64 index, struct page *page)
{
	struct tide_app_source source = { .page = page };

	return tide_app_try(object, index, &source);
}

/* ------------------------------------------------------------------ */
/* and back							       */
/* ------------------------------------------------------------------ */

/**
 * struct tide_app_read - pages that somebody waits for, or no longer does
 * @kref: his, and each request's
 * @over: where he waits until nothing is under way any more
 * @left: requests that are, and one for who makes them
 * @lost: not all of the pages have come
 * @pages: that are filled; they are this struct's until he has got them
 * @count: of those
 */
struct tide_app_read {
	struct kref kref;
	wait_queue_head_t over;
	atomic_t left;
	bool lost;
	struct page **pages;
	unsigned int count;
};

/* One request of it, to one lender. */
struct tide_app_get {
	struct tide_app_read *read;
	struct tide_get get;
};

/**
 * tide_app_pages_free() - undo tide_app_pages_alloc()
 * @pages: of which some may be NULL; may itself be
 * @count: how many
 */
void tide_app_pages_free(struct page **pages, unsigned int count)
{
	if (!pages)
		return;
	while (count--)
		if (pages[count])
			__free_page(pages[count]);
	kvfree(pages);
}

/**
 * tide_app_pages_alloc() - pages that are the caller's memory cgroup's
 * @count: how many, at least one
 *
 * Context: process.
 * Return: them, or NULL.
 */
struct page **tide_app_pages_alloc(unsigned int count)
{
	struct page **pages = kvcalloc(count, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	for (i = 0; pages && i < count; i++) {
		pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_HIGHMEM);
		if (!pages[i]) {
			tide_app_pages_free(pages, count);
			return NULL;
		}
	}
	return pages;
}

static void tide_app_read_release(struct kref *kref)
{
	struct tide_app_read *read = container_of(kref, struct tide_app_read, kref);

	tide_app_pages_free(read->pages, read->count);
	kfree(read);
	if (atomic_dec_and_test(&tide_app_reads))
		wake_up(&tide_app_read_over);
}

static void tide_app_read_less(struct tide_app_read *read)
{
	if (atomic_dec_and_test(&read->left))
		wake_up(&read->over);
	kref_put(&read->kref, tide_app_read_release);
}

static void tide_app_got(struct tide_get *get, unsigned int from, unsigned int to)
{
	atomic64_add(to - from, &tide_app_hits);
}

static void tide_app_get_lost(struct tide_get *get)
{
	WRITE_ONCE(container_of(get, struct tide_app_get, get)->read->lost, true);
}

static void tide_app_get_over(struct tide_get *get)
{
	struct tide_app_get *request = container_of(get, struct tide_app_get, get);

	tide_app_read_less(request->read);
	kfree(request);
}

static const struct tide_get_ops tide_app_get_ops = {
	.arrived = tide_app_got,
	.fall_back = tide_app_get_lost,
	.free = tide_app_get_over,
};

/* A request for up to @most pages, or NULL; the lender's reference is its own then. */
static struct tide_app_get *tide_app_get_begin(struct tide_app_read *read,
					       struct tide_object *object,
					       struct tide_lender *lender, unsigned int most)
{
	struct tide_app_get *request;

	request = kzalloc(struct_size(request, get.page, most), GFP_KERNEL_ACCOUNT);
	if (!request)
		return NULL;
	request->read = read;
	tide_get_begin(&request->get, &tide_app_get_ops, lender, object,
		       tide_size(read->count), most);
	request->get.exclusive = false;	/* a value stays until it is deleted */
	kref_get(&read->kref);
	atomic_inc(&read->left);
	return request;
}

/* Adds pages that are at the same lender, from page @i on; returns how many. Object locked. */
static unsigned int tide_app_get_fill(struct tide_app_get *request, u64 first, unsigned int i,
				      int where)
{
	struct tide_get *get = &request->get;
	u64 version;
	int slot;

	while (get->count < get->most) {
		version = tide_object_version(get->object, first + i, &slot);
		if (!version || slot != where || tide_outgoing_find(get->object, first + i))
			break;
		tide_get_add(get, request->read->pages[i], first + i, version);
		get->page[get->count - 1].last = true;
		i++;
	}
	return get->count;
}

/* Asks for pages from page @i on; returns how many, or 0: they are lost. */
static unsigned int tide_app_ask(struct tide_app_read *read, struct tide_object *object,
				 u64 first, unsigned int i, int slot)
{
	unsigned int most = read->count - i, count;
	struct tide_app_get *request;
	struct tide_lender *lender;
	unsigned long flags;

	lender = tide_lender_to_ask_alone(slot, most);
	if (!lender)
		return 0;
	most = min_t(unsigned int, most, READ_ONCE(lender->agreed.get));
	request = tide_app_get_begin(read, object, lender, most);
	if (!request) {
		tide_lender_put(lender);
		return 0;
	}
	tide_object_lock(object, flags);
	count = tide_app_get_fill(request, first, i, slot);
	tide_object_unlock(object, flags);
	if (count)
		tide_get_submit(&request->get);
	else
		tide_get_free(&request->get);
	return count;
}

/* Copies a page that is on its way out. Object locked. */
static bool tide_app_copy(struct tide_object *object, u64 index, struct page *page)
{
	struct tide_buffer *buffer = tide_outgoing_find(object, index);

	if (!buffer)
		return false;
	copy_highpage(page, buffer->page);
	tide_outgoing_hit(buffer);
	atomic64_inc(&tide_app_hits);
	return true;
}

/* Page @i, and some that follow; returns how many, or 0: they are lost. */
static unsigned int tide_app_read_next(struct tide_app_read *read, struct tide_object *object,
				       u64 first, unsigned int i)
{
	unsigned long flags;
	bool copied;
	int where;

	do {	/* until a page that has left its buffer meanwhile is seen to be with its lender */
		tide_object_lock(object, flags);
		where = tide_object_where(object, first + i);
		copied = tide_app_copy(object, first + i, read->pages[i]);
		tide_object_unlock(object, flags);
	} while (where == TIDE_BUFFERED && !copied);
	if (copied)
		return 1;
	return where >= 0 ? tide_app_ask(read, object, first, i, where) : 0;
}

static struct tide_app_read *tide_app_read_begin(struct page **pages, unsigned int count)
{
	struct tide_app_read *read = kzalloc(sizeof(*read), GFP_KERNEL_ACCOUNT);

	if (!read)
		return NULL;
	kref_init(&read->kref);
	init_waitqueue_head(&read->over);
	atomic_set(&read->left, 1);
	read->pages = pages;
	read->count = count;
	atomic_inc(&tide_app_reads);
	return read;
}

/**
 * tide_app_reads_spare() - may one more read be begun that is given up perhaps?
 *
 * What is given up goes on until its deadline, and who gives up may begin the next at once.
 */
bool tide_app_reads_spare(void)
{
	return atomic_read(&tide_app_reads) < TIDE_READS_SPARE;
}

/**
 * tide_app_pages_ask() - ask for pages
 * @object: of the pool
 * @first: index of the first one
 * @pages: of tide_app_pages_alloc(); the read's from here on
 * @count: how many
 *
 * Context: process; does not wait for lenders.
 * Return: what tide_app_pages_await() takes, or NULL without memory.
 */
struct tide_app_read *tide_app_pages_ask(struct tide_object *object, u64 first,
					 struct page **pages, unsigned int count)
{
	struct tide_app_read *read = tide_app_read_begin(pages, count);
	unsigned int i = 0, n = 1;

	if (!read) {
		tide_app_pages_free(pages, count);
		return NULL;
	}
	for (; i < count && n; i += n)
		n = tide_app_read_next(read, object, first, i);
	if (i < count)
		WRITE_ONCE(read->lost, true);
	tide_object_used(object);
	kref_get(&read->kref);
	tide_app_read_less(read);
	return read;
}

static bool tide_app_read_is_over(struct tide_app_read *read)
{
	return !atomic_read_acquire(&read->left);
}

/* Waits until nothing is under way, or no longer: what comes later goes nowhere. */
static int tide_app_read_wait(struct tide_app_read *read, ktime_t until)
{
	ktime_t left = until == KTIME_MAX ? until : ktime_sub(until, ktime_get());
	int err = -ETIME;

	if (tide_app_read_is_over(read))
		err = 0;
	else if (left == KTIME_MAX)
		err = wait_event_interruptible(read->over, tide_app_read_is_over(read));
	else if (left > 0)
		err = wait_event_interruptible_hrtimeout(read->over, tide_app_read_is_over(read),
							 left);
	if (err)
		return err == -ETIME ? err : -EINTR;
	return READ_ONCE(read->lost) ? -ENOENT : 0;
}

/**
 * tide_app_pages_await() - have the pages that were asked for
 * @read: it is gone afterwards
 * @until: when it is too late, in monotonic time; KTIME_MAX: never
 * @pages: set to them when this returns 0, for tide_app_pages_free()
 *
 * Context: process; waits for lenders, no longer than the deadline of their requests.
 * Return: 0, -ENOENT when some page did not come, -ETIME when it is too late, or -EINTR.
 */
int tide_app_pages_await(struct tide_app_read *read, ktime_t until, struct page ***pages)
{
	int err = tide_app_read_wait(read, until);

	if (!err) {	/* nothing is under way: they are the caller's */
		*pages = read->pages;
		read->pages = NULL;
	}
	kref_put(&read->kref, tide_app_read_release);
	return err;
}

/**
 * tide_app_page_is_gone() - has the pool lost a page for good?
 * @object: of the pool
 * @index: of the page
 *
 * Context: process; asks no lender.
 */
bool tide_app_page_is_gone(struct tide_object *object, u64 index)
{
	unsigned long flags;
	bool gone;

	tide_object_lock(object, flags);
	gone = tide_pool_lacks(object, index);
	tide_object_unlock(object, flags);
	return gone;
}

/**
 * tide_app_page_hits() - how many pages have come, as the hits of lenders count them
 */
u64 tide_app_page_hits(void)
{
	return atomic64_read(&tide_app_hits);
}

/**
 * tide_app_pages_exit() - wait for what was asked for and abandoned
 *
 * Context: process; nobody reads any more.
 */
void tide_app_pages_exit(void)
{
	wait_event(tide_app_read_over, !atomic_read(&tide_app_reads));
	/* What ended the last read has come back from it. */
	flush_workqueue(tide_disk_queue);
	synchronize_rcu_tasks();
}
