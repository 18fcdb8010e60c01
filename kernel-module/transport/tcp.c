// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections over TCP: exact sends and receives, by absolute deadlines, and the
 * listening socket. Nobody else knows that there are sockets.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/in6.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "base/compat.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_FRAME_MS		5000	/* for what has begun to come or go, and */
#define TIDE_SLOWEST		64	/* a millisecond more for so many bytes of it */
#define TIDE_USER_TIMEOUT_MS	8000
#define TIDE_BACKLOG		64

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

/**
 * struct tide_wire - a connection
 * @sock: its socket
 * @ahead: the receiving thread's
 */
struct tide_wire {
	struct socket *sock;
	struct tide_ahead ahead;
};

static_assert(sizeof(struct tide_data_item) <= sizeof(struct tide_put_item));

static struct socket *tide_listener;
static struct task_struct *tide_listen_task;

/* ------------------------------------------------------------------ */
/* life of a connection						       */
/* ------------------------------------------------------------------ */

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

/*
 * For small frames. A release of the socket, which nobody else has, resets the
 * connection and frees what was not sent.
 */
static void tide_wire_tune(struct socket *sock)
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

/* The socket is the connection's, or released. */
static struct tide_wire *tide_wire_of(struct socket *sock)
{
	struct tide_wire *wire = kzalloc(sizeof(*wire), GFP_KERNEL);

	if (!wire) {
		sock_release(sock);
		return NULL;
	}
	tide_wire_tune(sock);
	wire->sock = sock;
	return wire;
}

/**
 * tide_wire_create() - a connection that is not there yet
 * @family: of the peer's address
 *
 * Context: process.
 * Return: the connection, or an error pointer.
 */
struct tide_wire *tide_wire_create(int family)
{
	struct socket *sock;
	int err = sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP, &sock);

	if (err)
		return ERR_PTR(err);
	return tide_wire_of(sock) ?: ERR_PTR(-ENOMEM);
}

/**
 * tide_wire_connect() - reach a peer
 * @wire: just created
 * @address: the peer's, of the family that @wire was created for
 * @port: where it listens
 * @ms: how long this may take, in milliseconds
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_wire_connect(struct tide_wire *wire, const struct sockaddr_storage *address, u16 port,
		      unsigned int ms)
{
	struct sockaddr_storage to = *address;
	size_t size = sizeof(struct sockaddr_in);

	if (to.ss_family == AF_INET6) {
		((struct sockaddr_in6 *)&to)->sin6_port = htons(port);
		size = sizeof(struct sockaddr_in6);
	} else {
		((struct sockaddr_in *)&to)->sin_port = htons(port);
	}
	tide_wire_timeout(wire, ms);
	return kernel_connect(wire->sock, (struct sockaddr_unsized *)&to, size, 0);
}

/**
 * tide_wire_shut() - end a connection
 * @wire: the connection, or NULL; whoever sends or receives on it returns
 *
 * Context: process.
 */
void tide_wire_shut(struct tide_wire *wire)
{
	if (wire)
		kernel_sock_shutdown(wire->sock, SHUT_RDWR);
}

/**
 * tide_wire_finish() - say that nothing more comes
 * @wire: connected
 */
void tide_wire_finish(struct tide_wire *wire)
{
	kernel_sock_shutdown(wire->sock, SHUT_WR);
}

/**
 * tide_wire_free() - close a connection
 * @wire: nobody uses it any more, or NULL
 *
 * Context: process.
 */
void tide_wire_free(struct tide_wire *wire)
{
	if (!wire)
		return;
	sock_release(wire->sock);
	kfree(wire);
}

/**
 * tide_wire_origin() - where a connection comes from
 * @wire: accepted
 * @from: to be filled; of an IPv6 address the host's part is of no account, for a
 *	host may have any
 */
void tide_wire_origin(struct tide_wire *wire, struct in6_addr *from)
{
	struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };

	*from = (struct in6_addr) { };
	kernel_getpeername(wire->sock, (struct sockaddr *)&peer);
	if (peer.ss_family == AF_INET) {
		ipv6_addr_set_v4mapped(((struct sockaddr_in *)&peer)->sin_addr.s_addr, from);
	} else if (peer.ss_family == AF_INET6) {
		*from = ((struct sockaddr_in6 *)&peer)->sin6_addr;
		if (!ipv6_addr_v4mapped(from))
			memset(&from->s6_addr[8], 0, 8);
	}
}

/**
 * tide_wire_timeout() - bound how long a send or receive may block
 * @wire: the connection
 * @ms: milliseconds, 0 for no bound
 */
void tide_wire_timeout(struct tide_wire *wire, unsigned int ms)
{
	long timeout = ms ? msecs_to_jiffies(ms) : MAX_SCHEDULE_TIMEOUT;

	lock_sock(wire->sock->sk);
	wire->sock->sk->sk_rcvtimeo = timeout;
	wire->sock->sk->sk_sndtimeo = timeout;
	release_sock(wire->sock->sk);
}

/**
 * tide_wire_until() - by when must so many bytes be through?
 * @bytes: how many, beginning now
 *
 * A peer that lets them trickle is then as good as silent. To the tick, which costs
 * less than to know the time.
 */
ktime_t tide_wire_until(size_t bytes)
{
	return ktime_add_ms(ktime_get_coarse(), TIDE_FRAME_MS + bytes / TIDE_SLOWEST);
}

/* How many jiffies that is from now; 0: the time is up. For what has no end no timer is set. */
static long tide_wire_left(ktime_t until)
{
	s64 ns;

	if (until == KTIME_MAX)
		return MAX_SCHEDULE_TIMEOUT;
	ns = ktime_to_ns(ktime_sub(until, ktime_get()));
	return ns > 0 ? nsecs_to_jiffies(ns) + 1 : 0;
}

/* ------------------------------------------------------------------ */
/* sending							       */
/* ------------------------------------------------------------------ */

/**
 * tide_wire_send() - send bytes
 * @wire: the connection
 * @data: the bytes
 * @size: how many
 * @flags: MSG_DONTWAIT: send what fits and return; MSG_MORE: more follows
 *
 * Context: the only thread that sends on @wire at a time.
 * Return: number of bytes sent (all of them without MSG_DONTWAIT), or a
 * negative errno; -EAGAIN without MSG_DONTWAIT when the peer takes too long.
 */
int tide_wire_send(struct tide_wire *wire, void *data, size_t size, int flags)
{
	ktime_t until = tide_wire_until(size);
	size_t sent = 0;
	long left;
	int n;

	while (sent < size) {
		struct msghdr msg = { .msg_flags = flags | MSG_NOSIGNAL };
		struct kvec vec = { .iov_base = data + sent,
				    .iov_len = size - sent };

		left = flags & MSG_DONTWAIT ? 1 : tide_wire_left(until);
		if (!left)
			return -EAGAIN;
		WRITE_ONCE(wire->sock->sk->sk_sndtimeo, left);
		n = kernel_sendmsg(wire->sock, &msg, &vec, 1, vec.iov_len);
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
 * @wire: the connection
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
int tide_wire_send_frame(struct tide_wire *wire, const void *head, size_t size,
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
		WRITE_ONCE(wire->sock->sk->sk_sndtimeo, left);
		ret = sock_sendmsg(wire->sock, &msg);
		if (ret <= 0)
			return ret ?: -EPIPE;
	}
	return 0;
}

/**
 * tide_wire_position() - where the next byte to be sent goes
 * @wire: connected
 *
 * Context: the only thread that sends on @wire.
 * Return: a place in the stream of bytes, for tide_wire_passed().
 */
u32 tide_wire_position(const struct tide_wire *wire)
{
	return READ_ONCE(tcp_sk(wire->sock->sk)->write_seq);
}

/**
 * tide_wire_passed() - is all on the wire that comes before a place in the stream?
 * @wire: connected
 * @position: of tide_wire_position(), less than 2 GiB away
 *
 * Context: process.
 */
bool tide_wire_passed(const struct tide_wire *wire, u32 position)
{
	const struct tcp_sock *tp = tcp_sk(wire->sock->sk);
	bool passed = !before(READ_ONCE(tp->snd_nxt), position);

	if (passed)
		return true;
	/* A packet leaves before it is noted, and the answer may be here between the two. */
	lock_sock(wire->sock->sk);
	passed = !before(tp->snd_nxt, position);
	release_sock(wire->sock->sk);
	return passed;
}

/**
 * tide_wire_outstanding() - how many bytes the peer's kernel has not got yet
 * @wire: connected
 *
 * Context: the only thread that sends on @wire; what it says may be over a moment later.
 */
u32 tide_wire_outstanding(const struct tide_wire *wire)
{
	const struct tcp_sock *tp = tcp_sk(wire->sock->sk);

	return max_t(s32, 0, READ_ONCE(tp->write_seq) - READ_ONCE(tp->snd_una));
}

/* ------------------------------------------------------------------ */
/* receiving							       */
/* ------------------------------------------------------------------ */

/* Until no more than @slack bytes are missing; if there may be some, what is there will do. */
static int tide_wire_fill(struct tide_wire *wire, struct iov_iter *iter, size_t slack,
			  ktime_t until)
{
	int flags = slack ? 0 : MSG_WAITALL, ret;
	long left = 1;

	while (left && iov_iter_count(iter) > slack) {
		struct msghdr msg = { .msg_iter = *iter };

		left = tide_wire_left(until);
		if (left)
			WRITE_ONCE(wire->sock->sk->sk_rcvtimeo, left);
		ret = sock_recvmsg(wire->sock, &msg, left ? flags : MSG_DONTWAIT);
		if (ret <= 0)
			return ret ?: -ECONNRESET;
		iov_iter_advance(iter, ret);
	}
	return iov_iter_count(iter) > slack ? -EAGAIN : 0;
}

/**
 * tide_wire_recv_iter() - receive until an iterator is full
 * @wire: the connection
 * @iter: where to; left where the next byte goes
 * @until: when it must be full, however the bytes come
 *
 * What is there is taken also when the time is up, but no more is waited for.
 *
 * Context: the only thread that receives from @wire.
 * Return: 0 when it is full, -EAGAIN when it was not in time, -ECONNRESET when
 * the peer has closed, or another errno.
 */
int tide_wire_recv_iter(struct tide_wire *wire, struct iov_iter *iter, ktime_t until)
{
	return tide_wire_fill(wire, iter, 0, until);
}

/* Exactly @size bytes. */
static int tide_wire_fill_bytes(struct tide_wire *wire, void *data, size_t size, ktime_t until)
{
	struct kvec vec = { .iov_base = data, .iov_len = size };
	struct iov_iter iter;

	iov_iter_kvec(&iter, ITER_DEST, &vec, 1, size);
	return tide_wire_fill(wire, &iter, 0, until);
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
 * @wire: connected
 * @frame: where to
 * @until: when it must be there; when it has begun it has no more than a header's time
 *
 * Context: the only thread that receives from @wire.
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_head(struct tide_wire *wire, struct tide_frame *frame, ktime_t until)
{
	struct tide_ahead *ahead = &wire->ahead;
	size_t n = tide_ahead_take(ahead, frame, sizeof(*frame));
	struct kvec vec[] = {
		{ .iov_base = (u8 *)frame + n, .iov_len = sizeof(*frame) - n },
		{ .iov_base = ahead->bytes, .iov_len = sizeof(ahead->bytes) },
	};
	size_t size = vec[0].iov_len + vec[1].iov_len;
	struct iov_iter iter;
	int err = 0;

	if (n == sizeof(*frame))
		return 0;
	iov_iter_kvec(&iter, ITER_DEST, vec, ARRAY_SIZE(vec), size);
	if (!n)
		err = tide_wire_fill(wire, &iter, size - 1, until);
	if (!err && iov_iter_count(&iter) > sizeof(ahead->bytes))
		err = tide_wire_fill(wire, &iter, sizeof(ahead->bytes),
				     min(until, tide_wire_until(sizeof(*frame))));
	ahead->from = 0;
	ahead->to = err ? 0 : sizeof(ahead->bytes) - iov_iter_count(&iter);
	return err;
}

/**
 * tide_wire_recv_metadata() - receive what a frame has behind its header
 * @wire: connected
 * @data: where to
 * @size: how many bytes
 * @until: when they must be there
 *
 * Context: the only thread that receives from @wire.
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_metadata(struct tide_wire *wire, void *data, size_t size, ktime_t until)
{
	size_t n = tide_ahead_take(&wire->ahead, data, size);

	return tide_wire_fill_bytes(wire, data + n, size - n, until);
}

/**
 * tide_wire_recv() - receive exactly @size bytes of a frame that has begun
 * @wire: the connection
 * @data: where to
 * @size: how many
 *
 * Return: 0, -ETIMEDOUT when they were not in time, -ECONNRESET when the peer has
 * closed, or another errno.
 */
int tide_wire_recv(struct tide_wire *wire, void *data, size_t size)
{
	int err = tide_wire_fill_bytes(wire, data, size, tide_wire_until(size));

	return err == -EAGAIN ? -ETIMEDOUT : err;
}

/**
 * tide_wire_recv_pages() - receive the pages of a frame that has begun
 * @wire: the connection
 * @bvec: one element a page
 * @n: number of pages
 *
 * Return: as tide_wire_recv_iter().
 */
int tide_wire_recv_pages(struct tide_wire *wire, struct bio_vec *bvec, size_t n)
{
	struct iov_iter iter;

	iov_iter_bvec(&iter, ITER_DEST, bvec, n, n << PAGE_SHIFT);
	return tide_wire_recv_iter(wire, &iter, tide_wire_until(n << PAGE_SHIFT));
}

/* ------------------------------------------------------------------ */
/* listening							       */
/* ------------------------------------------------------------------ */

static int tide_listen_loop(void *arg)
{
	void (*accepted)(struct tide_wire *wire) = arg;
	struct tide_wire *wire;
	struct socket *sock;
	int err;

	while (!kthread_should_stop()) {
		err = kernel_accept(tide_listener, &sock, 0);
		if (err && !kthread_should_stop())
			schedule_timeout_interruptible(HZ / 10);
		wire = err ? NULL : tide_wire_of(sock);
		if (wire)
			accepted(wire);
	}
	return 0;
}

static int tide_bind(struct socket *sock, int family, u16 port)
{
	struct sockaddr_in6 any6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
		.sin6_addr = IN6ADDR_ANY_INIT,
	};
	struct sockaddr_in any4 = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};

	if (family == AF_INET6)
		return kernel_bind(sock, (struct sockaddr_unsized *)&any6, sizeof(any6));
	return kernel_bind(sock, (struct sockaddr_unsized *)&any4, sizeof(any4));
}

static int tide_listen_on(int family, u16 port, void (*accepted)(struct tide_wire *wire))
{
	struct task_struct *task;
	struct socket *sock;
	int err;

	err = sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	sock_set_reuseaddr(sock->sk);
	sock->sk->sk_ipv6only = false;	/* whatever net.ipv6.bindv6only says */
	err = tide_bind(sock, family, port) ?: kernel_listen(sock, TIDE_BACKLOG);
	if (err)
		goto release;
	task = kthread_create(tide_listen_loop, accepted, "tidepool_listen");
	if (IS_ERR(task)) {
		err = PTR_ERR(task);
		goto release;
	}
	tide_listener = sock;
	tide_listen_task = task;
	wake_up_process(task);
	return 0;
release:
	sock_release(sock);
	return err;
}

/**
 * tide_wire_listen() - accept connections
 * @port: where
 * @accepted: is given each, which is its own from then on; in a thread that may sleep
 *
 * IPv6 sockets take IPv4 peers as well.
 *
 * Context: process; nobody listens.
 * Return: 0 or a negative errno.
 */
int tide_wire_listen(u16 port, void (*accepted)(struct tide_wire *wire))
{
	int err = tide_listen_on(AF_INET6, port, accepted);

	if (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL)
		err = tide_listen_on(AF_INET, port, accepted);
	return err;
}

/**
 * tide_wire_unlisten() - accept none any more
 *
 * Context: process; somebody listens.
 */
void tide_wire_unlisten(void)
{
	kernel_sock_shutdown(tide_listener, SHUT_RDWR);
	kthread_stop(tide_listen_task);
	sock_release(tide_listener);
	tide_listener = NULL;
}
