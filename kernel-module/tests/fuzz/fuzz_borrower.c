// SPDX-License-Identifier: GPL-2.0
/* The borrower's side of the wire (borrowing.c, session.c, receive.c, fetch.c, lane.c and so on) against a lender that sends what it likes. */
#include "borrower/borrowing.c"
#include "borrower/peer.c"
#include "borrower/session.c"
#include "borrower/receive.c"
#include "borrower/fetch.c"
#include "borrower/lane.c"
#include "borrower/outbox.c"
#include "borrower/forgets.c"

#include "fuzz.h"

#define FROM_DISK	0xd1	/* what pages from disk are filled with, */
#define VERSION(n)	(1 + (n))	/* and the lender's, by version */
#define VERSIONS	3
#define OUTSTANDING	8

static struct tide_lender *lender;
static struct tide_lane *lane;	/* the one of the lender's that is listened to */
static struct tide_object object = { .id = 7 };
static long locked;		/* folios that a reader waits for */
static bool sealed_well;	/* what tide_decrypt() is to say */

const char * const tide_reasons[TIDE_REASONS];
struct workqueue_struct *tide_disk_queue;

/* ---- the pages ---- */

void folio_mark_uptodate(struct folio *folio)
{
	folio->uptodate = true;
}

void folio_unlock(struct folio *folio)
{
	fuzz_assert(folio->locked && folio->uptodate);
	fuzz_assert(folio->page.bytes[0] == FROM_DISK || folio->page.bytes[0] == VERSION((unsigned long)folio->private));
	fuzz_assert(folio->page.bytes[0] == folio->page.bytes[PAGE_SIZE - 1]);
	folio->locked = false;
	locked--;
}

void folio_put(struct folio *folio)
{
	fuzz_assert(!folio->locked);
	free(folio);
}

static void show(struct folio *folio)
{
	folio_mark_uptodate(folio);
	folio_unlock(folio);
	folio_put(folio);
}

/* ---- the reader ---- */

static void arrived(struct tide_get *get, unsigned int from, unsigned int to)
{
	fuzz_assert(to == from + 1);
	show(page_folio(get->page[from].page));
}

static void fall_back(struct tide_get *get)
{
	for (unsigned int i = 0; i < get->count; i++) {
		struct folio *folio = get->page[i].page ? page_folio(get->page[i].page) : NULL;

		if (!folio)
			continue;
		memset(folio->page.bytes, FROM_DISK, PAGE_SIZE);
		show(folio);
	}
}

static void free_get(struct tide_get *get)
{
	free(get);
}

static const struct tide_get_ops reader_ops = { .arrived = arrived, .fall_back = fall_back, .free = free_get };

/* A request that waits for its answer, as readahead.c makes them. */
static void ask(unsigned int count)
{
	struct tide_get *get = calloc(1, struct_size(get, page, count));

	get->ops = &reader_ops;
	get->lender = lender;
	get->lane = lane;
	kref_get(&lender->kref);
	get->object = &object;
	get->start = fuzz_now_ns;
	get->id = ++lane->next_id;
	get->count = count;
	for (unsigned int i = 0; i < count; i++) {
		struct folio *folio = calloc(1, sizeof(*folio));

		get->page[i] = (struct tide_get_page) {
			.page = &folio->page, .index = i, .version = 1 + fuzz_draw(VERSIONS), .last = true,
		};
		folio->page.folio = folio;
		folio->private = (void *)(unsigned long)get->page[i].version;
		folio->locked = true;
		locked++;
	}
	list_add_tail(&get->list, &lane->pending);
	lane->load += count;
}

/* Pages in the requests that are left. */
static unsigned int outstanding(void)
{
	unsigned int pages = 0;
	struct tide_get *get;

	list_for_each_entry(get, &lane->pending, list)
		pages += get->count;
	return pages;
}

/* ---- what session.c, receive.c and fetch.c call ---- */

int tide_decrypt(struct tide_cipher *c, unsigned int thread, const struct tide_page_id *id, struct page *page,
		 const u8 *tag)
{
	fuzz_assert(thread < lender->lanes);
	(void)c;
	(void)tag;
	if (sealed_well && page->bytes[0] == VERSION(id->version))
		return 0;
	memset(page->bytes, 0, PAGE_SIZE);
	return -EBADMSG;
}

ktime_t tide_wire_until(size_t bytes)
{
	return fuzz_now_ns + 5000000000 + bytes;
}

int tide_wire_recv_iter(struct tide_wire *wire, struct iov_iter *iter, ktime_t until)
{
	if (iter->kvec) {
		int err = fuzz_take(wire, iter->kvec->iov_base, iter->count);

		iter->count = err ? iter->count : 0;
		return err;
	}
	for (const struct bio_vec *bvec = iter->bvec; iter->count; bvec++, iter->count -= PAGE_SIZE) {
		fuzz_now_ns += fuzz_draw(3000000);
		if (fuzz_one_in(200)) {
			fuzz_now_ns += 2000000000;	/* it makes a long pause */
			if (fuzz_now_ns >= (u64)until)
				return -EAGAIN;
		}
		if (fuzz_take(wire, bvec->bv_page->bytes, PAGE_SIZE))
			return -ECONNRESET;
	}
	return 0;
}

/* Has nothing to say, or takes what it is given. */
#define NOTHING(result, name, ...)	result name(__VA_ARGS__) { return (result)0; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOTHING(void, tide_wire_timeout, struct tide_wire *wire, unsigned int ms)
NOTHING(struct tide_wire *, tide_wire_create, int family)
NOTHING(int, tide_wire_connect, struct tide_wire *wire, const struct sockaddr_storage *address, u16 port,
	unsigned int ms)
NOTHING(void, tide_wire_shut, struct tide_wire *wire)
NOTHING(void, tide_wire_free, struct tide_wire *wire)
NOTHING(int, tide_wire_send, struct tide_wire *wire, void *data, size_t size, int flags)
NOTHING(int, tide_sealers_create, struct tide_sealers *sealers, const struct tide_noise_keys *keys, bool initiator, bool clear)
NOTHING(bool, tide_handshake_clear, const struct tide_handshake *hs)
NOTHING(void, tide_sealers_free, struct tide_sealers *sealers)
NOTHING(struct tide_handshake *, tide_handshake_create, void)
NOTHING(void, tide_handshake_free, struct tide_handshake *hs)
NOTHING(int, tide_handshake_borrower, struct tide_wire *wire, struct tide_handshake *hs,
	const struct tide_identity *identity)
NOTHING(int, tide_put_prepare, struct tide_lender *l)
NOTHING(void, tide_put_release, struct tide_lender *l)
NOTHING(int, tide_sender_start, struct tide_lender *l)
NOTHING(void, tide_sender_stop, struct tide_lender *l)
NOTHING(bool, tide_puts_overdue, struct tide_lender *l)
NOTHING(int, tide_epoch_begin, struct tide_lender *l)
NOTHING(void, tide_epochs_end, struct tide_lender *l)
NOTHING(bool, tide_timeline_held, void)
NOTHING(void, tide_object_put, struct tide_object *o)
NOTHING(void, tide_object_erase, struct tide_object *o, pgoff_t index, u64 version)
NOTHING(void, tide_object_erase_locked, struct tide_object *o, pgoff_t index, u64 version)
NOTHING(void, tide_catalog_evicted, int slot, u64 id, pgoff_t index, u64 version)
NOTHING(void, tide_catalog_evicted_before, struct tide_lender *l, u64 version)
NOTHING(void, tide_catalog_granted, struct tide_lender *l)
NOTHING(void, tide_catalog_purge_lender, int slot)
NOTHING(void, tide_ages_init, struct tide_ages *a)
NOTHING(void, tide_histogram_add, struct tide_histogram *h, u64 ns)
NOTHING(u64, tide_next_version, void)
NOTHING(u64, tide_newest_version, void)
NOTHING(void, tide_filter_set, struct tide_lender *l, bool on)
NOTHING(void, tide_breaker_reset, struct tide_lender *l, bool losses)
NOTHING(void, tide_breaker_update, struct tide_lender *l)
NOTHING(void, tide_breaker_pinged, struct tide_lender *l, u64 sent_ns)
NOTHING(void, tide_breaker_ponged, struct tide_lender *l, u64 sent_ns, u64 rtt_ns)
NOTHING(void, tide_breaker_got, struct tide_lender *l, enum tide_size size, u64 ns)
NOTHING(void, tide_breaker_lost, struct tide_lender *l)
#pragma GCC diagnostic pop

struct tide_cipher *tide_epoch_cipher(const struct tide_epochs *epochs, u64 version)
{
	(void)epochs;
	return version == VERSIONS ? NULL : (struct tide_cipher *)&object;	/* nobody looks inside */
}

int tide_put_acknowledged(struct tide_lender *l, u64 id, unsigned int count, u64 stored)
{
	(void)l;
	(void)id;
	(void)count;
	(void)stored;
	return fuzz_one_in(20) ? -EPROTO : 0;
}

/* ---- messages ---- */

/* A reply to one of the requests, mostly, with pages of the versions that it names. */
static void add_data(void)
{
	static struct tide_data_item item[65536];
	unsigned int count = fuzz_count(TIDE_GET_MAX), hits = 0;
	u64 id = fuzz_draw(lane->next_id + 2);
	u8 page[PAGE_SIZE];
	struct tide_get *get;

	list_for_each_entry(get, &lane->pending, list)
		if (get->id == id && !fuzz_one_in(20))
			count = get->count;
	for (unsigned int i = 0; i < count; i++) {
		item[i].version = fuzz_draw(VERSIONS + 1);
		hits += !!item[i].version;
	}
	fuzz_frame(TIDE_DATA, count, id, count * sizeof(item[0]) + hits * PAGE_SIZE);
	fuzz_append(item, count * sizeof(item[0]));
	fuzz_append_random(TIDE_TAG_SIZE);
	for (unsigned int i = 0; i < count; i++) {
		memset(page, VERSION(item[i].version), sizeof(page));
		if (item[i].version)
			fuzz_append(page, sizeof(page));
	}
}

static void add_message(void)
{
	unsigned int count = fuzz_count(TIDE_NOTICE_MAX);

	switch (tide_lane_is_first(lane) || fuzz_one_in(50) ? fuzz_draw(7) : 4 + fuzz_draw(3)) {
	case 0:
		fuzz_frame(TIDE_PUT_ACK, fuzz_count(TIDE_PUT_MAX), fuzz_draw(100), sizeof(__le64));
		fuzz_append_random(sizeof(__le64) + TIDE_TAG_SIZE);
		break;
	case 1:
		fuzz_frame(TIDE_EVICTED, count, 0, count * sizeof(struct tide_page_id));
		fuzz_append_random(count * sizeof(struct tide_page_id) + TIDE_TAG_SIZE);
		break;
	case 2:
		fuzz_frame(TIDE_GRANT, 0, 0, sizeof(struct tide_grant));
		fuzz_append_random(sizeof(struct tide_grant) + TIDE_TAG_SIZE);
		break;
	case 3:
		fuzz_frame(TIDE_EVICTED_BEFORE, fuzz_one_in(20), 0, sizeof(__le64));
		fuzz_append_random(sizeof(__le64) + TIDE_TAG_SIZE);
		break;
	case 4:
		fuzz_frame(TIDE_PONG, 0, fuzz_now_ns, 0);
		fuzz_append_random(TIDE_TAG_SIZE);
		break;
	default:
		add_data();
	}
}

unsigned long fuzz_connection(void)
{
	struct tide_wire wire = { .input = fuzz_input };
	unsigned long messages = 1 + fuzz_draw(20);

	lender = calloc(1, sizeof(*lender));
	if (tide_lanes_prepare(lender) || tide_forget_prepare(lender))
		fuzz_fail("memory");
	lane = &lender->lane[fuzz_draw(lender->lanes)];
	kref_init(&lender->kref);
	lender->agreed = (struct tide_agreed) { TIDE_MAX_LANES, TIDE_GET_MAX, TIDE_PUT_MAX, TIDE_NOTICE_MAX };
	lender->config.deadline_us = 1000000;
	lender->config.encryption = fuzz_one_in(2) ? TIDE_AES_GCM : TIDE_NO_ENCRYPTION;
	sealed_well = !fuzz_one_in(4);
	lane->link.wire = &wire;
	lane->accepting = true;
	for (int i = fuzz_draw(OUTSTANDING); i >= 0; i--)
		ask(1 + fuzz_draw(40));
	for (unsigned long i = 0; i < messages; i++)
		add_message();
	wire.left = fuzz_one_in(3) ? fuzz_draw(fuzz_length + 1) : fuzz_length;
	fuzz_assert(tide_receive(lane) < 0);
	fuzz_assert(lane->load == outstanding());
	tide_get_abort(lane);
	fuzz_assert(locked == 0);
	fuzz_assert(lender->kref.count == 1);
	tide_lanes_release(lender);
	tide_forget_release(lender);
	free(lender);
	return messages;
}
