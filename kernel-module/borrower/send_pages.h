/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages on their way to a lender: send_pages.c. */
#ifndef TIDE_SEND_PAGES_H
#define TIDE_SEND_PAGES_H

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/types.h>

#include "base/outcome.h"
#include "uapi/wire.h"

struct page;
struct tide_buffer;
struct tide_object;
struct tide_lender;

/* Why a page is not put, and what counts it. */
struct tide_refusal {
	s64 __percpu *counter;
	enum tide_drop_reason reason;
};

struct tide_put_head {
	struct tide_frame frame;
	struct tide_put_item item[TIDE_PUT_MAX];
	u8 tag[TIDE_TAG_SIZE];		/* behind the last item */
} __packed;

struct tide_batch {
	struct list_head list;
	u64 id;
	unsigned int count;
	ktime_t sent, due;	/* when it was handed over, and by when it is to be acknowledged */
	bool sending;		/* the sender is at it; under put_lock */
	u32 end;		/* where on the wire its last byte is followed by the next */
	struct tide_buffer *buffer[TIDE_PUT_MAX];
};

/* What is to be put, as far as it matters to whom. */
#define TIDE_SEQUENTIAL	BIT(0)	/* was read in order */
#define TIDE_DISKLESS	BIT(1)	/* is on no disk */

struct tide_lender *tide_choose_lender(const char *only, unsigned int what,
				       struct tide_refusal *why);
bool tide_pool_lacks(struct tide_object *object, pgoff_t index);
bool tide_put_filled(struct tide_object *object, struct tide_lender *lender, pgoff_t index,
		     struct tide_buffer *buffer);
bool tide_put_page(struct tide_object *object, struct tide_lender *lender,
		   struct page *page, pgoff_t index, struct tide_buffer *buffer);
int tide_put_prepare(struct tide_lender *lender);
void tide_put_release(struct tide_lender *lender);
int tide_sender_start(struct tide_lender *lender);
void tide_sender_stop(struct tide_lender *lender);
bool tide_puts_overdue(struct tide_lender *lender);
int tide_put_acknowledged(struct tide_lender *lender, u64 id,
			  unsigned int count, u64 stored);

#endif /* TIDE_SEND_PAGES_H */
