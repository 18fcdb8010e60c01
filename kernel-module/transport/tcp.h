/* SPDX-License-Identifier: GPL-2.0-only */
/* Sockets, exact sends and receives: tcp.c. */
#ifndef TIDE_TCP_H
#define TIDE_TCP_H

#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/types.h>

#include "uapi/wire.h"

struct bio_vec;
struct iov_iter;
struct socket;

/* What a frame has before its pages, wherever in memory it is. */
#define TIDE_HEAD_MAX	(sizeof(struct tide_frame) + TIDE_TAG_SIZE +		\
			 TIDE_GET_MAX * sizeof(struct tide_data_item))
#define TIDE_HEAD_PARTS	(DIV_ROUND_UP(TIDE_HEAD_MAX, PAGE_SIZE) + 1)

/**
 * struct tide_ahead - what came behind the header of a frame
 * @bytes: no more than any frame has between its header and its pages, so no page
 *	is ever among them
 * @from: the first of them that nobody has taken
 * @to: behind the last one
 */
struct tide_ahead {
	u8 bytes[sizeof(struct tide_data_item) + TIDE_TAG_SIZE];
	unsigned int from, to;
};

int tide_wire_send(struct socket *sock, void *data, size_t size, int flags);
int tide_wire_send_frame(struct socket *sock, const void *head, size_t size,
			 struct bio_vec *bvec, size_t n);
u32 tide_wire_position(const struct socket *sock);
bool tide_wire_passed(const struct socket *sock, u32 position);
ktime_t tide_wire_until(size_t bytes);
int tide_wire_recv_iter(struct socket *sock, struct iov_iter *iter, ktime_t until);
int tide_wire_recv_head(struct socket *sock, struct tide_ahead *ahead, struct tide_frame *frame,
			ktime_t until);
int tide_wire_recv_metadata(struct socket *sock, struct tide_ahead *ahead, void *data,
			    size_t size, ktime_t until);
int tide_wire_recv_by(struct socket *sock, void *data, size_t size, ktime_t until);
int tide_wire_recv(struct socket *sock, void *data, size_t size);
int tide_wire_recv_pages(struct socket *sock, struct bio_vec *bvec, size_t n);
void tide_wire_tune(struct socket *sock);
void tide_wire_timeout(struct socket *sock, unsigned int ms);

#endif /* TIDE_TCP_H */
