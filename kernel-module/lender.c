// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender's side of the wire: one listening socket for all borrowers, and
 * for each borrower a session of two connections. A connection is a work item
 * that blocks in its socket; shutting the socket down ends it. What a session
 * stored is dropped with it, for the borrower's catalog is gone, too.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/algapi.h>
#include <linux/in6.h>
#include <linux/kthread.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "tidepool.h"

#define TIDE_STRANGERS_MAX	32	/* connections that have proved nothing */
#define TIDE_SILENCE_MS		15000	/* a borrower pings each second */
#define TIDE_TAKEOVER_MS	2000

u16 tide_port = TIDE_PORT;

/**
 * struct tide_connection - one accepted connection
 * @list: in tide_connections
 * @work: serves it
 * @sock: its socket
 * @borrower: once the handshake is over
 * @channel: likewise
 * @handshake: while it lasts
 * @request: payload of the frame being served
 * @reply: header and versions of the reply being sent
 * @folio: pages of the request being served
 * @bvec: the same, to be sent or received
 */
struct tide_connection {
	struct list_head list;
	struct work_struct work;
	struct socket *sock;
	struct tide_borrower *borrower;
	u8 channel;
	struct tide_handshake handshake;
	union {
		struct {
			struct tide_get_head head;
			struct tide_get_item item[TIDE_GET_MAX];
		} get;
		struct tide_page_id put[TIDE_PUT_MAX];
		struct tide_forget_item forget[TIDE_NOTICE_MAX];
	} request;
	struct {
		struct tide_frame frame;
		__le64 version[TIDE_GET_MAX];
	} __packed reply;
	struct folio *folio[TIDE_GET_MAX];
	struct bio_vec bvec[TIDE_GET_MAX];
};

static LIST_HEAD(tide_borrowers);
static LIST_HEAD(tide_connections);
static unsigned int tide_strangers;
static DEFINE_MUTEX(tide_lending_mutex);	/* the lists and the listener */
static DECLARE_WAIT_QUEUE_HEAD(tide_connections_wait);

/* Handshakes and gets come before puts: a reader waits for a get. */
static struct workqueue_struct *tide_get_queue, *tide_put_queue;
static struct socket *tide_listener;
static struct task_struct *tide_listen_task;
static unsigned int tide_listen_users;

/* ------------------------------------------------------------------ */
/* sending to the borrower					       */
/* ------------------------------------------------------------------ */

/* A frame with a small payload, on the GET channel. */
static int tide_reply(struct tide_borrower *borrower, u8 type, unsigned int count,
		      u64 id, const void *payload, size_t length)
{
	struct tide_frame frame = {
		.length = cpu_to_le32(length),
		.type = type,
		.count = cpu_to_le16(count),
		.id = cpu_to_le64(id),
	};
	int err = -ENOTCONN;

	mutex_lock(&borrower->send_mutex);
	if (borrower->get) {
		struct socket *sock = borrower->get->sock;

		err = tide_wire_send(sock, &frame, sizeof(frame), length ? MSG_MORE : 0);
		if (err >= 0 && length)
			err = tide_wire_send(sock, (void *)payload, length, 0);
	}
	mutex_unlock(&borrower->send_mutex);
	return err < 0 ? err : 0;
}

static int tide_send_grant(struct tide_borrower *borrower)
{
	__le64 bytes = cpu_to_le64(borrower->granted_bytes);

	return tide_reply(borrower, TIDE_GRANT, 0, 0, &bytes, sizeof(bytes));
}

static void tide_notify(struct work_struct *work)
{
	struct tide_borrower *borrower = container_of(to_delayed_work(work),
						      struct tide_borrower, notify);
	struct tide_page_id *id;
	struct tide_store *store;
	unsigned int n;

	id = kmalloc_array(TIDE_NOTICE_MAX, sizeof(*id), GFP_NOIO | __GFP_NOWARN);
	if (!id) {
		schedule_delayed_work(&borrower->notify, HZ);
		return;
	}
	store = READ_ONCE(borrower->store);	/* destroyed after this work */
	while (store && (n = tide_store_notices(store, id, TIDE_NOTICE_MAX))) {
		if (tide_reply(borrower, TIDE_EVICTED, n, 0, id, n * sizeof(*id)))
			break;
		atomic64_add(n, &borrower->stats.notices_sent);
	}
	kfree(id);
}

/* ------------------------------------------------------------------ */
/* the GET channel						       */
/* ------------------------------------------------------------------ */

static int tide_check(const struct tide_frame *frame, unsigned int max, size_t fixed,
		      size_t each)
{
	unsigned int count = le16_to_cpu(frame->count);

	if (count > max || le32_to_cpu(frame->length) != fixed + count * each)
		return -EPROTO;
	return 0;
}

static unsigned int tide_look_up(struct tide_connection *c, unsigned int count)
{
	u64 file = le64_to_cpu(c->request.get.head.file);
	unsigned int i, hits = 0;

	for (i = 0; i < count; i++) {
		struct tide_get_item *item = &c->request.get.item[i];

		c->folio[i] = tide_store_get(c->borrower->store, file,
					     le64_to_cpu(item->index),
					     le64_to_cpu(item->version));
		c->reply.version[i] = c->folio[i] ? item->version : 0;
		if (c->folio[i])
			c->bvec[hits++] = (struct bio_vec) {
				.bv_page = folio_page(c->folio[i], 0),
				.bv_len = PAGE_SIZE,
			};
	}
	return hits;
}

static int tide_send_data(struct tide_connection *c, unsigned int count,
			  unsigned int hits, __le64 id)
{
	size_t versions = count * sizeof(c->reply.version[0]);
	int err;

	c->reply.frame = (struct tide_frame) {
		.length = cpu_to_le32(versions + (hits << PAGE_SHIFT)),
		.type = TIDE_DATA,
		.count = cpu_to_le16(count),
		.id = id,
	};
	mutex_lock(&c->borrower->send_mutex);
	err = tide_wire_send(c->sock, &c->reply, sizeof(c->reply.frame) + versions,
			     hits ? MSG_MORE : 0);
	if (err >= 0)
		err = hits ? tide_wire_send_pages(c->sock, c->bvec, hits) : 0;
	mutex_unlock(&c->borrower->send_mutex);
	return err;
}

/* The borrower takes these pages back: they are of no more use here. */
static void tide_drop_sent(struct tide_connection *c, unsigned int count)
{
	u64 file = le64_to_cpu(c->request.get.head.file);
	unsigned int i;

	for (i = 0; i < count; i++) {
		u64 index = le64_to_cpu(c->request.get.item[i].index);

		if (c->reply.version[i])
			tide_store_forget(c->borrower->store, file, index, index,
					  le64_to_cpu(c->reply.version[i]) + 1);
	}
}

static int tide_serve_get(struct tide_connection *c, const struct tide_frame *frame)
{
	unsigned int i, hits, count = le16_to_cpu(frame->count);
	int err;

	err = tide_check(frame, TIDE_GET_MAX, sizeof(c->request.get.head),
			 sizeof(c->request.get.item[0]));
	if (err || !count)
		return -EPROTO;
	err = tide_wire_recv(c->sock, &c->request.get, le32_to_cpu(frame->length));
	if (err)
		return err;
	hits = tide_look_up(c, count);
	atomic64_inc(&c->borrower->stats.gets);
	atomic64_add(hits, &c->borrower->stats.get_hits);
	atomic64_add(count - hits, &c->borrower->stats.get_misses);
	err = tide_send_data(c, count, hits, frame->id);
	for (i = 0; i < count; i++)
		if (c->folio[i])
			folio_put(c->folio[i]);
	if (!err && frame->flags & TIDE_FLAG_EXCLUSIVE)
		tide_drop_sent(c, count);
	return err;
}

static int tide_serve_forget(struct tide_connection *c, const struct tide_frame *frame)
{
	unsigned int i, count = le16_to_cpu(frame->count);
	int err;

	err = tide_check(frame, TIDE_NOTICE_MAX, 0, sizeof(c->request.forget[0]));
	if (!err)
		err = tide_wire_recv(c->sock, c->request.forget, le32_to_cpu(frame->length));
	for (i = 0; !err && i < count; i++) {
		struct tide_forget_item *item = &c->request.forget[i];

		tide_store_forget(c->borrower->store, le64_to_cpu(item->file),
				  le64_to_cpu(item->first), le64_to_cpu(item->last),
				  le64_to_cpu(item->before));
	}
	return err;
}

static u64 tide_grant(const struct tide_borrower *borrower)
{
	u64 bytes = min3(borrower->wanted_bytes, READ_ONCE(borrower->quota_bytes),
			 READ_ONCE(tide_lend_bytes));

	return bytes & PAGE_MASK;
}

/* With borrower->mutex held. */
static void tide_regrant(struct tide_borrower *borrower)
{
	if (!borrower->store)
		return;
	borrower->granted_bytes = tide_grant(borrower);
	if (tide_store_resize(borrower->store, borrower->granted_bytes))
		pr_warn_ratelimited("borrowers/%s: no memory to note more pages\n",
				    borrower->name);
	tide_send_grant(borrower);
}

static int tide_serve_resize(struct tide_connection *c, const struct tide_frame *frame)
{
	__le64 bytes;
	int err;

	if (le32_to_cpu(frame->length) != sizeof(bytes) || frame->count)
		return -EPROTO;
	err = tide_wire_recv(c->sock, &bytes, sizeof(bytes));
	if (err)
		return err;
	mutex_lock(&c->borrower->mutex);
	c->borrower->wanted_bytes = min_t(u64, le64_to_cpu(bytes), TIDE_MAX_BYTES);
	tide_regrant(c->borrower);
	mutex_unlock(&c->borrower->mutex);
	return 0;
}

static int tide_serve_get_frame(struct tide_connection *c, const struct tide_frame *frame)
{
	switch (frame->type) {
	case TIDE_GET:
		return tide_serve_get(c, frame);
	case TIDE_FORGET:
		return tide_serve_forget(c, frame);
	case TIDE_RESIZE:
		return tide_serve_resize(c, frame);
	case TIDE_PING:
		if (frame->length || frame->count)
			return -EPROTO;
		return tide_reply(c->borrower, TIDE_PONG, 0, le64_to_cpu(frame->id),
				  NULL, 0);
	default:
		return -EPROTO;
	}
}

/* ------------------------------------------------------------------ */
/* the PUT channel						       */
/* ------------------------------------------------------------------ */

/* Allocates what the batch needs; a page that cannot be had goes to scratch. */
static void tide_prepare_batch(struct tide_connection *c, unsigned int count,
			       struct page *scratch)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		c->folio[i] = tide_store_prepare(c->borrower->store);
		c->bvec[i] = (struct bio_vec) {
			.bv_page = c->folio[i] ? folio_page(c->folio[i], 0) : scratch,
			.bv_len = PAGE_SIZE,
		};
	}
}

static u64 tide_store_batch(struct tide_connection *c, unsigned int count, bool usable)
{
	struct tide_borrower *borrower = c->borrower;
	unsigned int i;
	u64 stored = 0;

	for (i = 0; i < count; i++) {
		struct tide_page_id *id = &c->request.put[i];

		if (c->folio[i] && !usable)
			folio_put(c->folio[i]);
		else if (c->folio[i] && !tide_store_add(borrower->store, le64_to_cpu(id->file),
							le64_to_cpu(id->index),
							le64_to_cpu(id->version), c->folio[i]))
			stored |= BIT_ULL(i);
		else
			atomic64_inc(&borrower->stats.puts_refused);
	}
	return stored;
}

static int tide_serve_put(struct tide_connection *c, const struct tide_frame *frame,
			  struct page *scratch)
{
	unsigned int count = le16_to_cpu(frame->count);
	__le64 stored;
	int err;

	if (frame->type != TIDE_PUT || !count ||
	    tide_check(frame, TIDE_PUT_MAX, 0, sizeof(c->request.put[0]) + PAGE_SIZE))
		return -EPROTO;
	err = tide_wire_recv(c->sock, c->request.put, count * sizeof(c->request.put[0]));
	if (err)
		return err;
	tide_prepare_batch(c, count, scratch);
	err = tide_wire_recv_pages(c->sock, c->bvec, count);
	stored = cpu_to_le64(tide_store_batch(c, count, !err));
	return err ?: tide_reply(c->borrower, TIDE_PUT_ACK, count,
				 le64_to_cpu(frame->id), &stored, sizeof(stored));
}

/* ------------------------------------------------------------------ */
/* sessions							       */
/* ------------------------------------------------------------------ */

static void tide_shut(struct tide_connection *c)
{
	if (c)
		kernel_sock_shutdown(c->sock, SHUT_RDWR);
}

static bool tide_session_over(struct tide_borrower *borrower)
{
	bool over;

	mutex_lock(&borrower->mutex);
	over = !borrower->get && !borrower->put;
	mutex_unlock(&borrower->mutex);
	return over;
}

/* A new session takes over: the borrower knows nothing of the old one. */
static int tide_attach_get(struct tide_connection *c, u64 session, u64 wanted)
{
	struct tide_borrower *borrower = c->borrower;
	int err = 0;

	mutex_lock(&borrower->mutex);
	tide_shut(borrower->get);
	tide_shut(borrower->put);
	mutex_unlock(&borrower->mutex);
	if (!wait_event_timeout(tide_connections_wait, tide_session_over(borrower),
				msecs_to_jiffies(TIDE_TAKEOVER_MS)))
		return -EBUSY;

	mutex_lock(&borrower->mutex);
	if (borrower->get || borrower->put || !borrower->enabled) {
		err = -EBUSY;
		goto out;
	}
	borrower->wanted_bytes = min_t(u64, wanted, TIDE_MAX_BYTES);
	borrower->granted_bytes = tide_grant(borrower);
	borrower->store = tide_store_create(borrower, borrower->granted_bytes);
	if (!borrower->store) {
		err = -ENOMEM;
		goto out;
	}
	borrower->session = session;
	mutex_lock(&borrower->send_mutex);
	borrower->get = c;
	mutex_unlock(&borrower->send_mutex);
	pr_info("borrowers/%s: connected, %llu MiB granted\n", borrower->name,
		borrower->granted_bytes >> 20);
out:
	mutex_unlock(&borrower->mutex);
	return err;
}

static int tide_attach_put(struct tide_connection *c, u64 session)
{
	struct tide_borrower *borrower = c->borrower;
	int err = 0;

	mutex_lock(&borrower->mutex);
	if (!borrower->get || borrower->put || borrower->session != session)
		err = -EBUSY;
	else
		borrower->put = c;
	mutex_unlock(&borrower->mutex);
	return err;
}

/* The last connection of a session to go takes the store with it. */
static void tide_detach(struct tide_connection *c)
{
	struct tide_borrower *borrower = c->borrower;
	struct tide_store *store = NULL;

	mutex_lock(&borrower->mutex);
	if (borrower->get == c) {
		mutex_lock(&borrower->send_mutex);
		borrower->get = NULL;
		mutex_unlock(&borrower->send_mutex);
		tide_shut(borrower->put);
	} else if (borrower->put == c) {
		borrower->put = NULL;
		tide_shut(borrower->get);
	}
	if (!borrower->get && !borrower->put) {
		store = borrower->store;
		WRITE_ONCE(borrower->store, NULL);
		borrower->granted_bytes = 0;
		if (store)
			tide_store_destroy(store);
	}
	mutex_unlock(&borrower->mutex);
	wake_up_all(&tide_connections_wait);
}

static int tide_serve_session(struct tide_connection *c)
{
	bool get = c->channel == TIDE_CHANNEL_GET;
	struct page *scratch = alloc_page(GFP_KERNEL);
	struct tide_frame frame;
	int err = scratch ? 0 : -ENOMEM;

	if (!err && get) {
		tide_wire_timeout(c->sock, TIDE_SILENCE_MS);
		err = tide_send_grant(c->borrower);
	} else {
		tide_wire_timeout(c->sock, 0);	/* ends with the GET channel */
	}
	while (!err) {
		err = tide_wire_recv(c->sock, &frame, sizeof(frame));
		if (!err)
			err = get ? tide_serve_get_frame(c, &frame) :
				    tide_serve_put(c, &frame, scratch);
	}
	if (scratch)
		__free_page(scratch);
	if (err == -EPROTO)
		pr_warn_ratelimited("borrowers/%s: malformed frame, connection closed\n",
				    c->borrower->name);
	return err;
}

/* ------------------------------------------------------------------ */
/* connections							       */
/* ------------------------------------------------------------------ */

/* The enabled borrower of this name, and its key. Lending mutex held. */
static struct tide_borrower *tide_known(const char *name, u8 *key)
{
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list) {
		if (strcmp(borrower->name, name))
			continue;
		memcpy(key, borrower->key, TIDE_KEY_SIZE);
		return borrower;
	}
	return NULL;
}

/* On success the connection holds on to its borrower until it detaches. */
static int tide_welcome(struct tide_connection *c)
{
	struct tide_handshake *hs = &c->handshake;
	struct tide_borrower *borrower;
	u8 key[TIDE_KEY_SIZE], now[TIDE_KEY_SIZE];
	u64 wanted;
	int err;

	err = tide_handshake_hello(c->sock, hs);
	if (err)
		return err;
	mutex_lock(&tide_lending_mutex);
	borrower = tide_known(hs->hello.name, key);
	mutex_unlock(&tide_lending_mutex);
	if (!borrower)
		return -EACCES;
	err = tide_handshake_lender(c->sock, hs, key, &wanted);
	if (!err) {	/* it may be gone by now, or have another key */
		mutex_lock(&tide_lending_mutex);
		borrower = tide_known(hs->hello.name, now);
		if (borrower && !crypto_memneq(now, key, TIDE_KEY_SIZE))
			c->borrower = borrower;
		else
			err = -EACCES;
		mutex_unlock(&tide_lending_mutex);
	}
	memzero_explicit(key, sizeof(key));
	memzero_explicit(now, sizeof(now));
	if (err)
		return err;
	c->channel = hs->hello.channel;
	if (c->channel == TIDE_CHANNEL_GET)
		return tide_attach_get(c, le64_to_cpu(hs->hello.session), wanted);
	return tide_attach_put(c, le64_to_cpu(hs->hello.session));
}

static void tide_connection_end(struct tide_connection *c)
{
	mutex_lock(&tide_lending_mutex);
	list_del(&c->list);
	mutex_unlock(&tide_lending_mutex);
	sock_release(c->sock);
	kvfree(c);
	wake_up_all(&tide_connections_wait);
}

static void tide_serve(struct work_struct *work)
{
	struct tide_connection *c = container_of(work, struct tide_connection, work);

	tide_serve_session(c);
	tide_detach(c);
	tide_connection_end(c);
}

static void tide_meet(struct work_struct *work)
{
	struct tide_connection *c = container_of(work, struct tide_connection, work);
	int err = tide_welcome(c);

	mutex_lock(&tide_lending_mutex);
	tide_strangers--;
	mutex_unlock(&tide_lending_mutex);
	if (err) {
		atomic64_inc(&tide_stats.rejected);
		pr_info_ratelimited("connection refused: error %d\n", err);
		tide_connection_end(c);
		return;
	}
	INIT_WORK(&c->work, tide_serve);
	queue_work(c->channel == TIDE_CHANNEL_GET ? tide_get_queue : tide_put_queue,
		   &c->work);
}

static void tide_accepted(struct socket *sock)
{
	struct tide_connection *c = kvzalloc(sizeof(*c), GFP_KERNEL);
	bool full;

	mutex_lock(&tide_lending_mutex);
	full = !c || tide_strangers >= TIDE_STRANGERS_MAX;
	if (!full) {
		tide_strangers++;
		c->sock = sock;
		list_add(&c->list, &tide_connections);
		INIT_WORK(&c->work, tide_meet);
	}
	mutex_unlock(&tide_lending_mutex);
	if (full) {
		kvfree(c);
		sock_release(sock);
		return;
	}
	tide_wire_tune(sock);
	queue_work(tide_get_queue, &c->work);
}

/* ------------------------------------------------------------------ */
/* listening							       */
/* ------------------------------------------------------------------ */

static int tide_listen_loop(void *arg)
{
	struct socket *listener = arg, *sock;
	int err;

	while (!kthread_should_stop()) {
		err = kernel_accept(listener, &sock, 0);
		if (!err)
			tide_accepted(sock);
		else if (!kthread_should_stop())
			schedule_timeout_interruptible(HZ / 10);
	}
	return 0;
}

static int tide_bind(struct socket *sock, int family)
{
	struct sockaddr_in6 any6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(tide_port),
		.sin6_addr = IN6ADDR_ANY_INIT,
	};
	struct sockaddr_in any4 = {
		.sin_family = AF_INET,
		.sin_port = htons(tide_port),
	};

	if (family == AF_INET6)
		return kernel_bind(sock, (struct sockaddr *)&any6, sizeof(any6));
	return kernel_bind(sock, (struct sockaddr *)&any4, sizeof(any4));
}

static int tide_listen_on(int family)
{
	struct task_struct *task;
	struct socket *sock;
	int err;

	err = sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return err;
	sock_set_reuseaddr(sock->sk);
	err = tide_bind(sock, family) ?: kernel_listen(sock, 64);
	if (err)
		goto release;
	task = kthread_create(tide_listen_loop, sock, "tidepool_listen");
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

static void tide_queues_free(void)
{
	if (tide_get_queue)
		destroy_workqueue(tide_get_queue);
	if (tide_put_queue)
		destroy_workqueue(tide_put_queue);
	tide_get_queue = NULL;
	tide_put_queue = NULL;
}

static int tide_queues_alloc(void)
{
	tide_get_queue = alloc_workqueue("tidepool_serve_get", WQ_UNBOUND | WQ_HIGHPRI,
					 WQ_MAX_ACTIVE);
	tide_put_queue = alloc_workqueue("tidepool_serve_put", WQ_UNBOUND,
					 WQ_MAX_ACTIVE);
	return tide_get_queue && tide_put_queue ? 0 : -ENOMEM;
}

/* With tide_control's mutex held; IPv6 sockets take IPv4 borrowers as well. */
static int tide_listen(void)
{
	int err;

	if (tide_listen_users)
		goto listening;
	err = tide_queues_alloc() ?: tide_listen_on(AF_INET6);
	if (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL)
		err = tide_listen_on(AF_INET);
	if (err) {
		pr_err("port: %u: cannot listen: error %d\n", tide_port, err);
		tide_queues_free();
		return err;
	}
listening:
	tide_listen_users++;
	return 0;
}

static bool tide_no_connections(void)
{
	bool none;

	mutex_lock(&tide_lending_mutex);
	none = list_empty(&tide_connections);
	mutex_unlock(&tide_lending_mutex);
	return none;
}

static void tide_unlisten(void)
{
	struct tide_connection *c;

	if (--tide_listen_users)
		return;
	kernel_sock_shutdown(tide_listener, SHUT_RDWR);
	kthread_stop(tide_listen_task);
	sock_release(tide_listener);
	tide_listener = NULL;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(c, &tide_connections, list)
		tide_shut(c);
	mutex_unlock(&tide_lending_mutex);
	wait_event(tide_connections_wait, tide_no_connections());
	tide_queues_free();
}

bool tide_listening(void)
{
	return tide_listen_users;
}

/* ------------------------------------------------------------------ */
/* life of a borrower						       */
/* ------------------------------------------------------------------ */

/**
 * tide_borrower_create() - a borrower that is configured but not enabled
 * @name: of the pairing
 *
 * Return: the borrower or an error pointer.
 */
struct tide_borrower *tide_borrower_create(const char *name)
{
	struct tide_borrower *borrower = kzalloc(sizeof(*borrower), GFP_KERNEL);

	if (!borrower)
		return ERR_PTR(-ENOMEM);
	strscpy(borrower->name, name, sizeof(borrower->name));
	INIT_LIST_HEAD(&borrower->list);
	mutex_init(&borrower->mutex);
	mutex_init(&borrower->send_mutex);
	INIT_DELAYED_WORK(&borrower->notify, tide_notify);
	return borrower;
}

/**
 * tide_borrower_enable() - let it connect
 * @borrower: configured completely
 *
 * Context: process, under control.c's mutex.
 * Return: 0 or a negative errno.
 */
int tide_borrower_enable(struct tide_borrower *borrower)
{
	int err = tide_listen();

	if (err)
		return err;
	memset(&borrower->stats, 0, sizeof(borrower->stats));
	mutex_lock(&tide_lending_mutex);
	borrower->enabled = true;
	list_add(&borrower->list, &tide_borrowers);
	mutex_unlock(&tide_lending_mutex);
	return 0;
}

/* Is no connection bound to this borrower, or about to be? */
static bool tide_borrower_alone(struct tide_borrower *borrower)
{
	struct tide_connection *c;
	bool alone = true;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(c, &tide_connections, list)
		alone &= c->borrower != borrower;
	mutex_unlock(&tide_lending_mutex);
	return alone;
}

/**
 * tide_borrower_disable() - end its session and take its memory back
 * @borrower: enabled
 *
 * Context: process, under control.c's mutex.
 */
void tide_borrower_disable(struct tide_borrower *borrower)
{
	mutex_lock(&tide_lending_mutex);
	list_del_init(&borrower->list);
	mutex_unlock(&tide_lending_mutex);

	mutex_lock(&borrower->mutex);
	borrower->enabled = false;
	tide_shut(borrower->get);
	tide_shut(borrower->put);
	mutex_unlock(&borrower->mutex);
	wait_event(tide_connections_wait, tide_borrower_alone(borrower));
	cancel_delayed_work_sync(&borrower->notify);
	tide_unlisten();
}

void tide_borrower_destroy(struct tide_borrower *borrower)
{
	if (borrower->enabled)
		tide_borrower_disable(borrower);
	kfree_sensitive(borrower);
}

/**
 * tide_borrower_requota() - its quota, or what may be lent, has changed
 * @borrower: may be connected
 *
 * Context: process.
 */
void tide_borrower_requota(struct tide_borrower *borrower)
{
	mutex_lock(&borrower->mutex);
	tide_regrant(borrower);
	mutex_unlock(&borrower->mutex);
}

/* Each borrower keeps its share of what may be lent in all. */
static void tide_trim_share(struct tide_borrower *borrower, u64 may, u64 lent)
{
	mutex_lock(&borrower->mutex);
	if (borrower->store)
		tide_store_trim(borrower->store,
				mul_u64_u64_div_u64(tide_store_pages(borrower->store),
						    may, lent));
	mutex_unlock(&borrower->mutex);
}

/**
 * tide_lending_shrink() - tide_lend_bytes has changed
 *
 * Context: process, under control.c's mutex, so borrowers do not come or go.
 */
void tide_lending_shrink(void)
{
	u64 may = READ_ONCE(tide_lend_bytes) >> PAGE_SHIFT, lent = tide_store_lent();
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list) {
		tide_borrower_requota(borrower);
		if (lent > may)
			tide_trim_share(borrower, may, lent);
	}
}

const char *tide_borrower_state_name(struct tide_borrower *borrower)
{
	if (!borrower->enabled)
		return "Disabled";
	return READ_ONCE(borrower->get) && READ_ONCE(borrower->put) ? "Connected" :
								       "Listening";
}

u64 tide_borrower_lent_pages(struct tide_borrower *borrower)
{
	u64 pages;

	mutex_lock(&borrower->mutex);
	pages = borrower->store ? tide_store_pages(borrower->store) : 0;
	mutex_unlock(&borrower->mutex);
	return pages;
}

unsigned int tide_borrower_connections(struct tide_borrower *borrower)
{
	return !!READ_ONCE(borrower->get) + !!READ_ONCE(borrower->put);
}
