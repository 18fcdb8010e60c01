/* SPDX-License-Identifier: GPL-2.0-only */
/* Sockets, exact sends and receives: tcp.c. */
#ifndef TIDE_TCP_H
#define TIDE_TCP_H

#include <linux/ktime.h>
#include <linux/types.h>

struct bio_vec;
struct iov_iter;
struct socket;

int tide_wire_send(struct socket *sock, void *data, size_t size, int flags);
int tide_wire_send_pages(struct socket *sock, struct bio_vec *bvec, size_t n);
u32 tide_wire_position(const struct socket *sock);
bool tide_wire_passed(const struct socket *sock, u32 position);
ktime_t tide_wire_until(size_t bytes);
int tide_wire_recv_iter(struct socket *sock, struct iov_iter *iter, ktime_t until);
int tide_wire_recv_by(struct socket *sock, void *data, size_t size, ktime_t until);
int tide_wire_recv(struct socket *sock, void *data, size_t size);
int tide_wire_recv_pages(struct socket *sock, struct bio_vec *bvec, size_t n);
void tide_wire_tune(struct socket *sock);
void tide_wire_timeout(struct socket *sock, unsigned int ms);

#endif /* TIDE_TCP_H */
