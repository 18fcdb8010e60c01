/* SPDX-License-Identifier: GPL-2.0-only */
/* The connections that borrowers have to this guest, and who works for them: connections.c. */
#ifndef TIDE_CONNECTIONS_H
#define TIDE_CONNECTIONS_H

#include <linux/bvec.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/identity.h"
#include "transport/agreed.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

struct tide_borrower;

/**
 * struct tide_connection - one accepted connection
 * @list: in tide_connections
 * @stranger: in tide_strangers until the handshake is over
 * @deadline: ends the handshake, and then who is silent
 * @waits: in jiffies, since when for the next frame; 0: it is served
 * @from: where it comes from, as far as strangers are told apart
 * @work: serves it
 * @wire: the connection itself
 * @borrower: once the handshake is over
 * @channel: likewise
 * @agreed: limits, those of the GET channel's handshake
 * @ordinal: of the connections that were accepted
 * @resumed: it goes on with the former session's pages
 * @greeted: it has been sent a GRANT, or needs none; under send_mutex, if it has one
 * @vital: its end is that of the session: a lane's only once it was used
 * @told: notes that its EVICTED_BEFOREs stood for; likewise
 * @peer: likewise
 * @sealers: its keys
 * @request: metadata of the frame being served, and its tag
 * @reply: header, versions and tags of the reply being sent
 * @note: any other frame being sent
 * @folio: pages of the request being served
 * @bvec: the same, to be sent or received; room for what goes before them
 */
struct tide_connection {
	struct list_head list;
	struct list_head stranger;
	struct delayed_work deadline;
	unsigned long waits;
	struct in6_addr from;
	struct work_struct work;
	struct tide_wire *wire;
	struct tide_borrower *borrower;
	u8 channel;
	struct tide_agreed agreed;
	u64 ordinal;
	bool resumed, greeted, vital;
	u64 told;
	struct tide_identity peer;
	struct tide_sealers sealers;
	struct {
		union {
			struct {
				struct tide_get_head head;
				struct tide_get_item item[TIDE_GET_MAX];
			} get;
			struct tide_put_item put[TIDE_PUT_MAX];
			struct tide_forget_item forget[TIDE_NOTICE_MAX];
			__le64 bytes;
		};
		u8 tag[TIDE_TAG_SIZE];
	} __packed request;
	struct {
		struct tide_frame frame;
		struct tide_data_item item[TIDE_GET_MAX];
		u8 tag[TIDE_TAG_SIZE];
	} __packed reply;
	struct {
		struct tide_frame frame;
		u8 metadata[TIDE_NOTICE_MAX * sizeof(struct tide_page_id)];
		u8 tag[TIDE_TAG_SIZE];
	} __packed note;
	struct folio *folio[TIDE_GET_MAX];
	struct bio_vec bvec[TIDE_HEAD_PARTS + TIDE_GET_MAX];
};

extern wait_queue_head_t tide_connections_wait;

/* Handshakes and gets come before puts: a reader waits for a get. */
extern struct workqueue_struct *tide_get_queue;
extern struct workqueue_struct *tide_put_queue;

static inline void tide_shut(struct tide_connection *c)
{
	if (c)
		tide_wire_shut(c->wire);
}

int tide_queues_alloc(void);
void tide_queues_free(void);
void tide_connection_add(struct tide_connection *c);
void tide_connection_end(struct tide_connection *c);
bool tide_connections_gone(struct tide_borrower *borrower);
void tide_connections_await(bool (*over)(struct tide_borrower *borrower),
			    struct tide_borrower *borrower, long timeout);
void tide_connections_break(void);
void tide_borrower_part(struct tide_borrower *borrower);
void tide_tell(struct tide_borrower *borrower, unsigned long delay);
void tide_expire_in(struct tide_borrower *borrower, unsigned int ms);

#endif /* TIDE_CONNECTIONS_H */
