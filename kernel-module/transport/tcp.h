/* SPDX-License-Identifier: GPL-2.0-only */
/* Connections: exact sends and receives, and whoever connects: tcp.c. */
#ifndef TIDE_TCP_H
#define TIDE_TCP_H

#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/types.h>

#include "uapi/wire.h"

struct bio_vec;
struct in6_addr;
struct iov_iter;
struct sockaddr_storage;
struct tide_wire;

/* What a frame has before its pages, wherever in memory it is. */
#define TIDE_HEAD_MAX	(sizeof(struct tide_frame) + TIDE_TAG_SIZE +		\
			 TIDE_GET_MAX * sizeof(struct tide_data_item))
#define TIDE_HEAD_PARTS	(DIV_ROUND_UP(TIDE_HEAD_MAX, PAGE_SIZE) + 1)

struct tide_wire *tide_wire_create(int family);
int tide_wire_connect(struct tide_wire *wire, const struct sockaddr_storage *address, u16 port,
		      unsigned int ms);
void tide_wire_shut(struct tide_wire *wire);
void tide_wire_finish(struct tide_wire *wire);
void tide_wire_free(struct tide_wire *wire);
void tide_wire_timeout(struct tide_wire *wire, unsigned int ms);
void tide_wire_origin(struct tide_wire *wire, struct in6_addr *from);
ktime_t tide_wire_until(size_t bytes);

int tide_wire_send(struct tide_wire *wire, void *data, size_t size, int flags);
int tide_wire_send_frame(struct tide_wire *wire, const void *head, size_t size,
			 struct bio_vec *bvec, size_t n);
u32 tide_wire_position(const struct tide_wire *wire);
u32 tide_wire_outstanding(const struct tide_wire *wire);
bool tide_wire_passed(const struct tide_wire *wire, u32 position);

int tide_wire_recv_iter(struct tide_wire *wire, struct iov_iter *iter, ktime_t until);
int tide_wire_recv_head(struct tide_wire *wire, struct tide_frame *frame, ktime_t until);
int tide_wire_recv_metadata(struct tide_wire *wire, void *data, size_t size, ktime_t until);
int tide_wire_recv(struct tide_wire *wire, void *data, size_t size);
int tide_wire_recv_pages(struct tide_wire *wire, struct bio_vec *bvec, size_t n);

int tide_wire_listen(u16 port, void (*accepted)(struct tide_wire *wire));
void tide_wire_unlisten(void);

#endif /* TIDE_TCP_H */
