// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets and the handshake: exact sends and receives, and the proof, in both
 * directions, that the other end has the pairing's pre-shared key. Nothing but
 * a fixed-size tide_hello is read from a peer that has not given that proof.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/algapi.h>
#include <crypto/hash.h>
#include <linux/net.h>
#include <linux/random.h>
#include <linux/tcp.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "tidepool.h"

#define TIDE_HANDSHAKE_MS	5000
#define TIDE_FRAME_MS		5000	/* for what has begun to come or go, and */
#define TIDE_SLOWEST		64	/* a millisecond more for so many bytes of it */
#define TIDE_USER_TIMEOUT_MS	8000

/* Loading the algorithm is checked once, when the module is loaded. */
int tide_wire_init(void)
{
	struct crypto_shash *tfm = crypto_alloc_shash("hmac(sha256)", 0, 0);

	if (IS_ERR(tfm)) {
		pr_err("this kernel has no hmac(sha256)\n");
		return PTR_ERR(tfm);
	}
	crypto_free_shash(tfm);
	return 0;
}

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

/**
 * tide_wire_send_pages() - send whole pages
 * @sock: the socket
 * @bvec: one element a page; used up
 * @n: number of pages
 *
 * Context: as tide_wire_send().
 * Return: 0 or a negative errno; -EAGAIN when the peer takes too long.
 */
int tide_wire_send_pages(struct socket *sock, struct bio_vec *bvec, size_t n)
{
	struct msghdr msg = { .msg_flags = MSG_NOSIGNAL };
	ktime_t until = tide_wire_until(n << PAGE_SHIFT);
	long left;
	int ret;

	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, bvec, n, n << PAGE_SHIFT);
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
	long left = 1;
	int ret;

	while (left && iov_iter_count(iter)) {
		struct msghdr msg = { .msg_iter = *iter };

		left = tide_wire_left(until);
		if (left)
			WRITE_ONCE(sock->sk->sk_rcvtimeo, left);
		ret = sock_recvmsg(sock, &msg, left ? MSG_WAITALL : MSG_DONTWAIT);
		if (ret <= 0)
			return ret ?: -ECONNRESET;
		iov_iter_advance(iter, ret);
	}
	return iov_iter_count(iter) ? -EAGAIN : 0;
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

/* ------------------------------------------------------------------ */
/* handshake							       */
/* ------------------------------------------------------------------ */

/* HMAC-SHA256 over who speaks, the hello and the lender's nonce. */
static int tide_mac(const u8 *key, const char *speaker,
		    const struct tide_handshake *hs, u64 size_bytes, u8 *mac)
{
	struct crypto_shash *tfm = crypto_alloc_shash("hmac(sha256)", 0, 0);
	__le64 size = cpu_to_le64(size_bytes);
	int err;

	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	err = crypto_shash_setkey(tfm, key, TIDE_KEY_SIZE);
	if (!err) {
		SHASH_DESC_ON_STACK(desc, tfm);

		desc->tfm = tfm;
		err = crypto_shash_init(desc) ?:
		      crypto_shash_update(desc, speaker, strlen(speaker)) ?:
		      crypto_shash_update(desc, (const u8 *)&hs->hello,
					  sizeof(hs->hello)) ?:
		      crypto_shash_update(desc, hs->challenge.nonce,
					  TIDE_NONCE_SIZE) ?:
		      crypto_shash_finup(desc, (const u8 *)&size,
					 sizeof(size), mac);
		shash_desc_zero(desc);
	}
	crypto_free_shash(tfm);
	return err;
}

static int tide_mac_check(const u8 *key, const char *speaker,
			  const struct tide_handshake *hs, u64 size_bytes,
			  const u8 *mac)
{
	u8 expected[TIDE_MAC_SIZE];
	int err = tide_mac(key, speaker, hs, size_bytes, expected);

	if (!err && crypto_memneq(expected, mac, TIDE_MAC_SIZE))
		err = -EACCES;
	memzero_explicit(expected, sizeof(expected));
	return err;
}

#define TIDE_SPEAKER_LENDER	"tidepool 2 lender"
#define TIDE_SPEAKER_BORROWER	"tidepool 2 borrower"

/**
 * tide_handshake_borrower() - the borrower's half of the handshake
 * @sock: connected
 * @hs: scratch space
 * @key: the pre-shared key
 * @name: of the pairing
 * @channel: which of the two connections this is
 * @session: drawn for this pair of connections
 * @size_bytes: what it would like to borrow
 *
 * Return: 0, -EACCES when the lender refused or could not prove that it has
 * the key, or another negative errno.
 */
int tide_handshake_borrower(struct socket *sock, struct tide_handshake *hs,
			    const u8 *key, const char *name, u8 channel,
			    u64 session, u64 size_bytes)
{
	struct tide_proof proof = { .size_bytes = cpu_to_le64(size_bytes) };
	int err;

	memset(hs, 0, sizeof(*hs));
	hs->hello.magic = cpu_to_le32(TIDE_MAGIC);
	hs->hello.protocol = cpu_to_le16(TIDE_PROTOCOL);
	hs->hello.channel = channel;
	hs->hello.session = cpu_to_le64(session);
	strscpy(hs->hello.name, name, TIDE_NAME_MAX);
	get_random_bytes(hs->hello.nonce, TIDE_NONCE_SIZE);

	tide_wire_timeout(sock, TIDE_HANDSHAKE_MS);
	err = tide_wire_send(sock, &hs->hello, sizeof(hs->hello), 0);
	if (err < 0)
		return err;
	err = tide_wire_recv(sock, &hs->challenge, sizeof(hs->challenge));
	if (err)	/* a lender that does not know the name hangs up */
		return err == -ECONNRESET ? -EACCES : err;
	err = tide_mac_check(key, TIDE_SPEAKER_LENDER, hs, 0, hs->challenge.mac);
	if (err)
		return err;
	err = tide_mac(key, TIDE_SPEAKER_BORROWER, hs, size_bytes, proof.mac);
	if (err)
		return err;
	err = tide_wire_send(sock, &proof, sizeof(proof), 0);
	return err < 0 ? err : 0;
}

/**
 * tide_handshake_hello() - receive and check the first message
 * @sock: just accepted
 * @hs: its @hello is filled
 *
 * All that is read from a peer which has proved nothing yet.
 *
 * Return: 0, -EPROTO when it is not a hello of this protocol, or an errno.
 */
int tide_handshake_hello(struct socket *sock, struct tide_handshake *hs)
{
	int err;

	tide_wire_timeout(sock, TIDE_HANDSHAKE_MS);
	err = tide_wire_recv(sock, &hs->hello, sizeof(hs->hello));
	if (err)
		return err;
	if (le32_to_cpu(hs->hello.magic) != TIDE_MAGIC ||
	    le16_to_cpu(hs->hello.protocol) != TIDE_PROTOCOL ||
	    hs->hello.channel > TIDE_CHANNEL_PUT ||
	    hs->hello.reserved ||
	    !hs->hello.name[0] || hs->hello.name[TIDE_NAME_MAX - 1])
		return -EPROTO;
	return 0;
}

/**
 * tide_handshake_lender() - the lender's half, after the hello
 * @sock: the connection
 * @hs: with the hello received
 * @key: of the pairing that the hello names
 * @size_bytes: what the borrower would like to have
 *
 * Return: 0, -EACCES when the borrower does not have the key, or an errno.
 */
int tide_handshake_lender(struct socket *sock, struct tide_handshake *hs,
			  const u8 *key, u64 *size_bytes)
{
	struct tide_proof proof;
	int err;

	get_random_bytes(hs->challenge.nonce, TIDE_NONCE_SIZE);
	err = tide_mac(key, TIDE_SPEAKER_LENDER, hs, 0, hs->challenge.mac);
	if (err)
		return err;
	err = tide_wire_send(sock, &hs->challenge, sizeof(hs->challenge), 0);
	if (err < 0)
		return err;
	err = tide_wire_recv(sock, &proof, sizeof(proof));
	if (err)
		return err;
	*size_bytes = le64_to_cpu(proof.size_bytes);
	return tide_mac_check(key, TIDE_SPEAKER_BORROWER, hs, *size_bytes, proof.mac);
}
