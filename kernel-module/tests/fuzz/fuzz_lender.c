// SPDX-License-Identifier: GPL-2.0
/* The lender's side of the wire (serve.c) against a borrower that sends what it likes. */
#include "lender/serve.c"

#include "fuzz.h"

static long folios;		/* that somebody has */
static size_t owed;		/* bytes that the reply being sent still lacks */

u64 tide_lend_bytes, tide_reserve_bytes;
unsigned int tide_linger_s = 60;
bool tide_lending_held;

/* ---- the pages ---- */

static struct folio *folio_new(void)
{
	struct folio *folio = calloc(1, sizeof(*folio));

	folio->page.folio = folio;
	folio->refs = 1;
	folios++;
	return folio;
}

void folio_put(struct folio *folio)
{
	fuzz_assert(folio->refs > 0);
	if (--folio->refs)
		return;
	folios--;
	free(folio);
}

struct folio *tide_shelf_prepare(struct tide_shelf *shelf)
{
	(void)shelf;
	return fuzz_one_in(5) ? NULL : folio_new();
}

void tide_shelf_cancel(struct tide_shelf *shelf, struct folio *folio)
{
	(void)shelf;
	folio_put(folio);
}

int tide_shelf_add(struct tide_shelf *shelf, const struct tide_put_item *item, struct folio *folio)
{
	(void)shelf;
	(void)item;
	if (!fuzz_one_in(5))
		return 0;
	folio_put(folio);
	return -ENOMEM;
}

void tide_shelf_settle(struct tide_shelf *shelf, struct folio **folio, unsigned int count)
{
	(void)shelf;
	for (unsigned int i = 0; i < count; i++)
		folio_put(folio[i]);
}

struct folio *tide_shelf_get(struct tide_shelf *shelf, u64 file, pgoff_t index, u64 version, u8 *tag)
{
	(void)shelf;
	(void)file;
	(void)index;
	(void)version;
	if (fuzz_one_in(3))
		return NULL;
	memset(tag, 7, TIDE_TAG_SIZE);
	return folio_new();
}

bool tide_shelf_forget(struct tide_shelf *shelf, struct tide_range *range, unsigned int *most)
{
	(void)shelf;
	fuzz_assert(range->at.index == range->last);	/* of an exclusive GET */
	return *most == 0;
}

void tide_unwanted_add(struct tide_borrower *borrower, const struct tide_forget_item *item, unsigned int count)
{
	static volatile u64 sum;

	(void)borrower;
	fuzz_assert(count <= TIDE_NOTICE_MAX);
	for (unsigned int i = 0; i < count; i++)
		sum += item[i].first + item[i].last;	/* all of it is there */
}

unsigned int tide_notes_take(struct tide_notes *notes, struct tide_page_id *id, unsigned int max)
{
	(void)notes;
	memset(id, 7, max * sizeof(*id));
	return max;
}

u64 tide_notes_before(struct tide_notes *notes, u64 *told)
{
	(void)notes;
	(void)told;
	return fuzz_one_in(3) ? 7 : 0;
}

struct tide_notes *tide_shelf_notes(struct tide_shelf *shelf)
{
	return (struct tide_notes *)shelf;	/* nobody looks inside */
}

bool tide_shelf_trimming(struct tide_shelf *shelf)
{
	(void)shelf;
	return fuzz_one_in(4);	/* before long */
}

unsigned int tide_notes_untold(struct tide_notes *notes)
{
	(void)notes;
	return fuzz_one_in(2) ? TIDE_NOTICE_MAX : 0;
}

/* connections.c's: at once, as all that is queued */
void tide_tell(struct tide_borrower *borrower, unsigned long delay)
{
	if (!delay)
		tide_notify(&borrower->notify.work);
}

static void resize(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(work, struct tide_borrower, resize);

	fuzz_assert(borrower->wanted_bytes <= TIDE_MAX_BYTES);
	borrower->grant_due = true;
	tide_tell(borrower, 0);
}

/* ---- the wire ---- */

ktime_t tide_wire_until(size_t bytes)
{
	return bytes;
}

int tide_wire_recv_pages(struct tide_wire *wire, struct bio_vec *bvec, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = fuzz_take(wire, bvec[i].bv_page->bytes, PAGE_SIZE);
	return err;
}

/* What is sent must be whole frames of lengths that are what they say. */
static void account(const void *data, size_t size)
{
	if (!owed) {
		const struct tide_frame *frame = data;

		fuzz_assert(size >= sizeof(*frame));
		owed = frame->length;
		size -= sizeof(*frame);
	}
	fuzz_assert(size <= owed);
	owed -= size;
}

int tide_wire_send(struct tide_wire *wire, void *data, size_t size, int flags)
{
	(void)wire;
	(void)flags;
	account(data, size);
	return size;
}

int tide_wire_send_frame(struct tide_wire *wire, const void *head, size_t size, struct bio_vec *bvec, size_t n)
{
	(void)wire;
	fuzz_assert(size <= TIDE_HEAD_MAX);
	account(head, size);
	for (size_t i = 0; i < n; i++)
		account(bvec[TIDE_HEAD_PARTS + i].bv_page->bytes, PAGE_SIZE);
	return 0;
}

void tide_wire_shut(struct tide_wire *wire)
{
	(void)wire;
}

void tide_wire_timeout(struct tide_wire *wire, unsigned int ms)
{
	(void)wire;
	(void)ms;
}

/* ---- messages ---- */

static void add_get(void)
{
	unsigned int count = fuzz_count(TIDE_GET_MAX);
	size_t length = sizeof(struct tide_get_head) + count * sizeof(struct tide_get_item);

	fuzz_frame(TIDE_GET, count, fuzz_draw(UINT64_MAX), length);
	fuzz_append_random(length + TIDE_TAG_SIZE);
}

static void add_forget(void)
{
	unsigned int count = fuzz_count(TIDE_NOTICE_MAX);

	fuzz_frame(TIDE_FORGET, count, 0, count * sizeof(struct tide_forget_item));
	fuzz_append_random(count * sizeof(struct tide_forget_item) + TIDE_TAG_SIZE);
}

static void add_put(void)
{
	unsigned int count = fuzz_count(TIDE_PUT_MAX);
	size_t length = count * (sizeof(struct tide_put_item) + PAGE_SIZE);

	fuzz_frame(TIDE_PUT, count, fuzz_draw(UINT64_MAX), length);
	fuzz_append_random(length + TIDE_TAG_SIZE);
}

static void add_message(u8 channel)
{
	static const u8 first[] = { [TIDE_CHANNEL_GET] = 0, [TIDE_CHANNEL_PUT] = 4, [TIDE_CHANNEL_LANE] = 3 };

	switch (first[channel] && !fuzz_one_in(50) ? first[channel] + fuzz_draw(5 - first[channel]) : fuzz_draw(5)) {
	case 0:
		add_forget();
		break;
	case 1:
		add_get();
		break;
	case 2:
		fuzz_frame(TIDE_RESIZE, 0, 0, sizeof(__le64));
		fuzz_append_random(sizeof(__le64) + TIDE_TAG_SIZE);
		break;
	case 3:
		fuzz_frame(TIDE_PING, 0, fuzz_draw(UINT64_MAX), 0);
		fuzz_append_random(TIDE_TAG_SIZE);
		break;
	default:
		if (channel == TIDE_CHANNEL_PUT)
			add_put();
		else
			add_get();
	}
}

unsigned long fuzz_connection(void)
{
	struct tide_borrower borrower = { .name = "fuzz" };
	struct tide_connection *c = calloc(1, sizeof(*c));
	struct tide_wire wire = { .input = fuzz_input };
	unsigned long messages = 1 + fuzz_draw(20);

	c->wire = &wire;
	c->borrower = &borrower;
	c->channel = fuzz_draw(3);
	c->agreed = (struct tide_agreed) { TIDE_MAX_LANES, TIDE_GET_MAX, TIDE_PUT_MAX, TIDE_NOTICE_MAX };
	c->greeted = c->channel != TIDE_CHANNEL_GET;
	if (c->channel != TIDE_CHANNEL_LANE)
		borrower.get = c;
	INIT_WORK(&borrower.resize, resize);
	borrower.shelf = (struct tide_shelf *)&borrower;	/* nobody looks inside */
	owed = 0;
	for (unsigned long i = 0; i < messages; i++)
		add_message(c->channel);
	wire.left = fuzz_one_in(3) ? fuzz_draw(fuzz_length + 1) : fuzz_length;
	tide_serve_session(c);
	fuzz_assert(folios == 0);
	fuzz_assert(owed == 0);
	free(c);
	return messages;
}
