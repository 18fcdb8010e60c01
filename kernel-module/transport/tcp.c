// SPDX-License-Identifier: GPL-2.0-only
/* Sockets: exact sends and receives. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/net.h>
#include <linux/tcp.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "base/compat.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_FRAME_MS		5000	/* for what has begun to come or go, and */
#define TIDE_SLOWEST		64	/* a millisecond more for so many bytes of it */
#define TIDE_USER_TIMEOUT_MS	8000

/* A lock class of our own: we send while a reader may hold another socket. */
static struct lock_class_key tide_slock_key[2], tide_lock_key[2];

static void tide_reclassify(struct sock *sk)
{
	if (!IS_ENABLED(CONFIG_DEBUG_LOCK_ALLOC))
		return;
	if (sk->sk_family == AF_INET6)
		sock_lock_init_class_and_name(sk, "slock-AF_INET6-TIDEPOOL",
					      &tide_slock_key[1],
					      "sk_lock-AF_INET6-TIDEPOOL",
					      &tide_lock_key[1]);
	else
		sock_lock_init_class_and_name(sk, "slock-AF_INET-TIDEPOOL",
					      &tide_slock_key[0],
					      "sk_lock-AF_INET-TIDEPOOL",
					      &tide_lock_key[0]);
}

/**
 * tide_wire_tune() - set up a fresh socket for small frames
 * @sock: not connected yet, or just accepted and not used by anybody else
 *
 * A release of it resets the connection and frees what was not sent.
 *
 * Context: process.
 */
void tide_wire_tune(struct socket *sock)
{
	tide_reclassify(sock->sk);
	tide_sk_own_frag(sock->sk);
	/*
	 * tcp_close() stops a kernel socket's timers: what is in flight to a
	 * peer that is gone would be kept for ever.
	 */
	sock_no_linger(sock->sk);
	tcp_sock_set_nodelay(sock->sk);
	tcp_sock_set_user_timeout(sock->sk, TIDE_USER_TIMEOUT_MS);
	sock_set_keepalive(sock->sk);
}

/**
 * tide_wire_timeout() - bound how long a send or receive may block
 * @sock: the socket
 * @ms: milliseconds, 0 for no bound
 */
void tide_wire_timeout(struct socket *sock, unsigned int ms)
{
	long timeout = ms ? msecs_to_jiffies(ms) : MAX_SCHEDULE_TIMEOUT;

	lock_sock(sock->sk);
	sock->sk->sk_rcvtimeo = timeout;
	sock->sk->sk_sndtimeo = timeout;
	release_sock(sock->sk);
}

/**
 * tide_wire_until() - by when must so many bytes be through?
 * @bytes: how many, beginning now
 *
 * A peer that lets them trickle is then as good as silent.
 */
ktime_t tide_wire_until(size_t bytes)
{
	return ktime_add_ms(ktime_get(), TIDE_FRAME_MS + bytes / TIDE_SLOWEST);
}

/* How many jiffies that is from now; 0: the time is up. */
static long tide_wire_left(ktime_t until)
{
	s64 ns = ktime_to_ns(ktime_sub(until, ktime_get()));

	return ns > 0 ? nsecs_to_jiffies(ns) + 1 : 0;
}

/**
 * tide_wire_send() - send bytes
 * @sock: the socket
 * @data: the bytes
 * @size: how many
 * @flags: MSG_DONTWAIT: send what fits and return; MSG_MORE: more follows
 *
 * Context: the only thread that sends on @sock at a time.
 * Return: number of bytes sent (all of them without MSG_DONTWAIT), or a
 * negative errno; -EAGAIN without MSG_DONTWAIT when the peer takes too long.
 */
int tide_wire_send(struct socket *sock, void *data, size_t size, int flags)
{
	ktime_t until = tide_wire_until(size);
	size_t sent = 0;
	long left;
	int n;

	while (sent < size) {
		struct msghdr msg = { .msg_flags = flags | MSG_NOSIGNAL };
		struct kvec vec = { .iov_base = data + sent,
				    .iov_len = size - sent };

		left = tide_wire_left(until);
		if (!left)
			return -EAGAIN;
		WRITE_ONCE(sock->sk->sk_sndtimeo, left);
		n = kernel_sendmsg(sock, &msg, &vec, 1, vec.iov_len);
		if (n <= 0)
			return sent && (flags & MSG_DONTWAIT) ? sent : n ?: -EPIPE;
		sent += n;
		if (flags & MSG_DONTWAIT)
			break;
	}
	return sent;
}

/* Bytes from anywhere, page by page: into the room before @bvec; returns where they begin. */
static struct bio_vec *tide_wire_parts(struct bio_vec *bvec, const void *data, size_t size)
{
	const u8 *at = data + size;

	while (size) {
		size_t part = min_t(size_t, size, offset_in_page(at - 1) + 1);

		at -= part;
		size -= part;
		*--bvec = (struct bio_vec) {
			.bv_page = is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at),
			.bv_offset = offset_in_page(at),
			.bv_len = part,
		};
	}
	return bvec;
}

/**
 * tide_wire_send_frame() - send bytes and whole pages behind them
 * @sock: the socket
 * @head: the bytes
 * @size: how many, at most TIDE_HEAD_MAX
 * @bvec: room for TIDE_HEAD_PARTS, then an element for each page; used up
 * @n: number of pages
 *
 * All of it at once: each call of the socket costs as much as some hundred bytes.
 *
 * Context: as tide_wire_send().
 * Return: 0 or a negative errno; -EAGAIN when the peer takes too long.
 */
int tide_wire_send_frame(struct socket *sock, const void *head, size_t size,
			 struct bio_vec *bvec, size_t n)
{
	struct bio_vec *pages = bvec + TIDE_HEAD_PARTS, *all = tide_wire_parts(pages, head, size);
	struct msghdr msg = { .msg_flags = MSG_NOSIGNAL };
	ktime_t until = tide_wire_until(size + (n << PAGE_SHIFT));
	long left;
	int ret;

	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, all, pages - all + n, size + (n << PAGE_SHIFT));
	while (msg_data_left(&msg)) {
		left = tide_wire_left(until);
		if (!left)
			return -EAGAIN;
		WRITE_ONCE(sock->sk->sk_sndtimeo, left);
		ret = sock_sendmsg(sock, &msg);
		if (ret <= 0)
			return ret ?: -EPIPE;
	}
	return 0;
}

/**
 * tide_wire_position() - where the next byte to be sent goes
 * @sock: connected
 *
 * Context: the only thread that sends on @sock.
 * Return: a place in the stream of bytes, for tide_wire_passed().
 */
u32 tide_wire_position(const struct socket *sock)
{
	return READ_ONCE(tcp_sk(sock->sk)->write_seq);
}

/**
 * tide_wire_passed() - is all on the wire that comes before a place in the stream?
 * @sock: connected
 * @position: of tide_wire_position(), less than 2 GiB away
 *
 * Context: process.
 */
bool tide_wire_passed(const struct socket *sock, u32 position)
{
	const struct tcp_sock *tp = tcp_sk(sock->sk);
	bool passed = !before(READ_ONCE(tp->snd_nxt), position);

	if (passed)
		return true;
	/* A packet leaves before it is noted, and the answer may be here between the two. */
	lock_sock(sock->sk);
	passed = !before(tp->snd_nxt, position);
	release_sock(sock->sk);
	return passed;
}

/* Until no more than @slack bytes are missing; if there may be some, what is there will do. */
static int tide_wire_fill(struct socket *sock, struct iov_iter *iter, size_t slack, ktime_t until)
{
	int flags = slack ? 0 : MSG_WAITALL, ret;
	long left = 1;

	while (left && iov_iter_count(iter) > slack) {
		struct msghdr msg = { .msg_iter = *iter };

		left = tide_wire_left(until);
		if (left)
			WRITE_ONCE(sock->sk->sk_rcvtimeo, left);
		ret = sock_recvmsg(sock, &msg, left ? flags : MSG_DONTWAIT);
		if (ret <= 0)
			return ret ?: -ECONNRESET;
		iov_iter_advance(iter, ret);
	}
	return iov_iter_count(iter) > slack ? -EAGAIN : 0;
}

/**
 * tide_wire_recv_iter() - receive until an iterator is full
 * @sock: the socket
 * @iter: where to; left where the next byte goes
 * @until: when it must be full, however the bytes come
 *
 * What is there is taken also when the time is up, but no more is waited for.
 *
 * Context: the only thread that receives from @sock.
 * Return: 0 when it is full, -EAGAIN when it was not in time, -ECONNRESET when
 * the peer has closed, or another errno.
 */
int tide_wire_recv_iter(struct socket *sock, struct iov_iter *iter, ktime_t until)
{
	return tide_wire_fill(sock, iter, 0, until);
}

static size_t tide_ahead_take(struct tide_ahead *ahead, void *data, size_t size)
{
	size_t n = min_t(size_t, size, ahead->to - ahead->from);

	memcpy(data, ahead->bytes + ahead->from, n);
	ahead->from += n;
	return n;
}

/**
 * tide_wire_recv_head() - receive the header of a frame, and what is right behind it
 * @sock: the socket
 * @ahead: what came with the former header; gets what comes with this one
 * @frame: where to
 * @until: when it must be there
 *
 * Context: the only thread that receives from @sock.
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_head(struct socket *sock, struct tide_ahead *ahead, struct tide_frame *frame,
			ktime_t until)
{
	size_t n = tide_ahead_take(ahead, frame, sizeof(*frame));
	struct kvec vec[] = {
		{ .iov_base = (u8 *)frame + n, .iov_len = sizeof(*frame) - n },
		{ .iov_base = ahead->bytes, .iov_len = sizeof(ahead->bytes) },
	};
	struct iov_iter iter;
	int err;

	if (n == sizeof(*frame))
		return 0;
	iov_iter_kvec(&iter, ITER_DEST, vec, ARRAY_SIZE(vec),
		      vec[0].iov_len + vec[1].iov_len);
	err = tide_wire_fill(sock, &iter, sizeof(ahead->bytes), until);
	ahead->from = 0;
	ahead->to = err ? 0 : sizeof(ahead->bytes) - iov_iter_count(&iter);
	return err;
}

/**
 * tide_wire_recv_metadata() - receive what a frame has behind its header
 * @sock: the socket
 * @ahead: what came with the header
 * @data: where to
 * @size: how many bytes
 * @until: when they must be there
 *
 * Pages follow only when nothing is left in @ahead.
 *
 * Context: the only thread that receives from @sock.
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_metadata(struct socket *sock, struct tide_ahead *ahead, void *data,
			    size_t size, ktime_t until)
{
	size_t n = tide_ahead_take(ahead, data, size);
	struct kvec vec = { .iov_base = data + n, .iov_len = size - n };
	struct iov_iter iter;

	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, vec.iov_len);
	return tide_wire_fill(sock, &iter, 0, until);
}

/**
 * tide_wire_recv_by() - receive exactly @size bytes by a certain time
 * @sock: the socket
 * @data: where to
 * @size: how many
 * @until: when the last one must be there
 *
 * Return: 0, -ETIMEDOUT when they were not in time, -ECONNRESET when the peer has
 * closed, or another errno.
 */
int tide_wire_recv_by(struct socket *sock, void *data, size_t size, ktime_t until)
{
	struct kvec vec = { .iov_base = data, .iov_len = size };
	struct iov_iter iter;
	int err;

	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, size);
	err = tide_wire_recv_iter(sock, &iter, until);
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

/**
 * tide_wire_recv() - receive exactly @size bytes of a frame that has begun
 * @sock: the socket
 * @data: where to
 * @size: how many
 *
 * Return: as tide_wire_recv_by().
 */
int tide_wire_recv(struct socket *sock, void *data, size_t size)
{
	return tide_wire_recv_by(sock, data, size, tide_wire_until(size));
}

/**
 * tide_wire_recv_pages() - receive the pages of a frame that has begun
 * @sock: the socket
 * @bvec: one element a page
 * @n: number of pages
 *
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_pages(struct socket *sock, struct bio_vec *bvec, size_t n)
{
	struct iov_iter iter;

	iov_iter_bvec(&iter, ITER_DEST, bvec, n, n << PAGE_SHIFT);
	return tide_wire_recv_iter(sock, &iter, tide_wire_until(n << PAGE_SHIFT));
}
