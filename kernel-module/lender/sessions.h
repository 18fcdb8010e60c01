/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lender's side of the wire: what listening (listen.c), serving (serve.c)
 * and the borrowers' sessions (borrowers.c) share.
 */
#ifndef TIDE_LENDER_H
#define TIDE_LENDER_H

#include <linux/bvec.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/identity.h"
#include "lender/borrowers.h"
#include "transport/agreed.h"
#include "transport/frames.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

/**
 * struct tide_connection - one accepted connection
 * @list: in tide_connections
 * @stranger: in tide_strangers until the handshake is over
 * @deadline: ends the handshake
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

extern struct mutex tide_lending_mutex;	/* the borrowers and the connections */
extern wait_queue_head_t tide_connections_wait;

static inline void tide_shut(struct tide_connection *c)
{
	if (c)
		tide_wire_shut(c->wire);
}

/* serve.c */
void tide_notify(struct work_struct *work);
void tide_serve_session(struct tide_connection *c);

/* borrowers.c */
enum tide_answer_code tide_welcomes(const struct tide_identity *who);
struct tide_borrower *tide_known(const struct tide_identity *who);
int tide_attach_get(struct tide_connection *c, const struct tide_hello *hello);
int tide_attach_more(struct tide_connection *c, const struct tide_hello *hello);
void tide_detach(struct tide_connection *c);
void tide_regrant(struct tide_borrower *borrower);

#endif /* TIDE_LENDER_H */
