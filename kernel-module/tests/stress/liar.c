// SPDX-License-Identifier: GPL-2.0
/*
 * Peers that have the pairing's key, pass the handshake, and then send what they like: most of it is well-formed and
 * means nothing, or names pages that were put, and once in a while something is not a frame at all.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define __packed __attribute__((packed))
#include "../../wire.h"

#include "hmac.h"
#include "network.h"
#include "stress.h"

#define GRANT_BYTES	((uint64_t)option("grant", 64) << 20)
#define KNOWN_PAGES	1024	/* whose names are remembered, for lies that are nearly true */
#define BROKEN_ONE_IN	1000	/* frames: it ends a session, and the next one takes its time */
#define PAYLOAD_MAX	(TIDE_GET_MAX * (sizeof(struct tide_data_item) + PAGE))
#define LINES_MAX	16	/* pages of data in one lie */
#define SILENCE_SECONDS	2
#define PAUSE_US	300	/* between what nobody asked for, so that there is something to lie about */

static const char lender_says[] = "tidepool 2 lender", borrower_says[] = "tidepool 2 borrower";

/* One session: its two connections, and what has been said of pages on them. */
struct session {
	int get, put;
	uint64_t number, random;
	uint64_t ping;			/* the last one's id */
	struct tide_page_id known[KNOWN_PAGES];
	unsigned int known_count;
	pthread_mutex_t lock;		/* what is sent on `get`, and the members above */
	bool over;
	bool truthful;			/* it acknowledges what it gets, and spoils nothing */
};

static uint8_t key[HMAC_BYTES];
static unsigned long sent;
static unsigned char payload[PAYLOAD_MAX];

/* ---- what is common ---- */

static void read_key(void)
{
	const char *text = option_text("key", "");

	for (int i = 0; i < HMAC_BYTES; i++)
		if (sscanf(text + 2 * i, "%2hhx", &key[i]) != 1) {
			errno = EINVAL;
			die("key");
		}
}

static void sign(const char *speaker, const struct tide_hello *hello, const uint8_t *nonce, uint64_t size, uint8_t *mac)
{
	uint64_t little = htole64(size);
	struct hmac_part parts[] = {
		{ speaker, strlen(speaker) }, { hello, sizeof(*hello) }, { nonce, TIDE_NONCE_SIZE }, { &little, sizeof(little) },
	};

	hmac(key, parts, 4, mac);
}

static uint64_t draw(struct session *s, uint64_t below)
{
	return random_next(&s->random) % below;
}

/* Takes what has come and does not look at it; false when the peer has hung up. */
static bool drain(int fd)
{
	static char scratch[1 << 16];
	ssize_t n;

	do {
		n = recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
	} while (n > 0);
	return n < 0 && errno == EAGAIN;
}

/* Sends all of it; with `listen` it takes what comes meanwhile, for the peer may wait for that. */
static bool push(int fd, const void *data, size_t length, bool listen)
{
	while (length) {
		ssize_t n = send(fd, data, length, MSG_NOSIGNAL | (listen ? MSG_DONTWAIT : 0));

		if (n < 0 && errno == EAGAIN && listen) {
			struct pollfd wait = { .fd = fd, .events = POLLIN | POLLOUT };

			if (poll(&wait, 1, SILENCE_SECONDS * 1000) <= 0 || !drain(fd))
				return false;
			continue;
		}
		if (n <= 0)
			return false;
		data = (const char *)data + n;
		length -= n;
	}
	return true;
}

/* Makes a frame something that it should not be. */
static void spoil(struct session *s, struct tide_frame *frame)
{
	switch (draw(s, 5)) {
	case 0:
		frame->length = htole32(random_next(&s->random));
		break;
	case 1:
		frame->length = htole32(le32toh(frame->length) + draw(s, 65) - 32);
		break;
	case 2:
		frame->count = htole16(random_next(&s->random));
		break;
	case 3:
		frame->type = random_next(&s->random);
		break;
	default:
		for (size_t i = 0; i < sizeof(*frame); i++)
			((uint8_t *)frame)[i] = random_next(&s->random);
	}
}

#define SLANDER_PAGES	16	/* on either side of one */

static bool tell(int fd, const struct tide_frame *frame, size_t length, bool listen)
{
	__atomic_add_fetch(&sent, 1, __ATOMIC_RELAXED);
	return push(fd, frame, sizeof(*frame), listen) && push(fd, payload, length, listen);
}

static bool say(struct session *s, int fd, uint8_t type, unsigned int count, uint64_t id, size_t length, bool listen)
{
	struct tide_frame frame = {
		.length = htole32(length), .type = type, .count = htole16(count), .id = htole64(id),
		.flags = draw(s, 4) ? 0 : TIDE_FLAG_EXCLUSIVE,
	};

	if (!s->truthful && !draw(s, BROKEN_ONE_IN))
		spoil(s, &frame);
	return tell(fd, &frame, length, listen);
}

static uint64_t little_number(struct session *s)
{
	return htole64(draw(s, 10) ? draw(s, 32) : random_next(&s->random));
}

static void fill_with_numbers(struct session *s, size_t length)
{
	for (size_t i = 0; i + 8 <= length; i += 8) {
		uint64_t number = little_number(s);

		memcpy(payload + i, &number, sizeof(number));
	}
}

/* How many of something a frame names; sometimes too many. */
static unsigned int some(struct session *s, unsigned int most)
{
	if (!draw(s, BROKEN_ONE_IN))
		return draw(s, 2) ? 0 : most + 1;
	return draw(s, 50) ? 1 + draw(s, most < LINES_MAX ? most : LINES_MAX) : most;
}

static void set_patience(int fd, int seconds)
{
	struct timeval patience = { .tv_sec = seconds };
	int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* ---- a borrower that lies ---- */

static int borrower_connects(struct session *s, const char *address, int channel)
{
	struct tide_hello hello = {
		.magic = htole32(TIDE_MAGIC), .protocol = htole16(TIDE_PROTOCOL),
		.channel = channel, .session = htole64(s->number),
	};
	int fd = connect_to(address, option("port", TIDE_PORT));
	struct tide_challenge challenge;
	struct tide_proof proof = { .size_bytes = htole64(GRANT_BYTES) };

	if (fd < 0)
		return -1;
	set_patience(fd, SILENCE_SECONDS);
	strncpy((char *)hello.name, option_text("name", "pairing"), TIDE_NAME_MAX - 1);
	if (push(fd, &hello, sizeof(hello), false) && read_fully(fd, &challenge, sizeof(challenge))) {
		sign(borrower_says, &hello, challenge.nonce, GRANT_BYTES, proof.mac);
		if (push(fd, &proof, sizeof(proof), false))
			return fd;
	}
	close(fd);
	return -1;
}

static bool borrower_begins(struct session *s, const char *address)
{
	struct { struct tide_frame frame; uint64_t bytes; } __packed grant;

	s->number = random_next(&s->random);
	s->put = -1;
	s->get = borrower_connects(s, address, TIDE_CHANNEL_GET);
	if (s->get >= 0 && read_fully(s->get, &grant, sizeof(grant)))
		s->put = borrower_connects(s, address, TIDE_CHANNEL_PUT);
	return s->put >= 0;
}

static bool borrower_lies(struct session *s)
{
	unsigned int n;
	size_t length;

	switch (draw(s, 8)) {
	case 0 ... 2:
		n = some(s, TIDE_GET_MAX);
		length = sizeof(struct tide_get_head) + n * sizeof(struct tide_get_item);
		fill_with_numbers(s, length);
		return say(s, s->get, TIDE_GET, n, random_next(&s->random), length, true);
	case 3 ... 4:
		n = some(s, TIDE_PUT_MAX);
		length = n * sizeof(struct tide_put_item);
		fill_with_numbers(s, length);
		return say(s, s->put, TIDE_PUT, n, random_next(&s->random), length + n * PAGE, true);
	case 5:
		n = some(s, TIDE_NOTICE_MAX);
		length = n * sizeof(struct tide_forget_item);
		fill_with_numbers(s, length);
		return say(s, s->get, TIDE_FORGET, n, 0, length, true);
	case 6:
		fill_with_numbers(s, sizeof(uint64_t));
		return say(s, s->get, TIDE_RESIZE, 0, 0, sizeof(uint64_t), true);
	default:
		return say(s, s->get, TIDE_PING, 0, random_next(&s->random), 0, true);
	}
}

/* stress liar-borrower ADDRESS key=HEX [name=pairing] [port=7470] [messages=10000] [seed=N]: borrows, and lies. */
int mode_liar_borrower(const char *address)
{
	static struct session s;
	unsigned long messages = option("messages", 10000), sessions = 0;

	read_key();
	s.random = random_seed(0);
	while (sent < messages) {
		if (borrower_begins(&s, address)) {
			sessions++;
			while (sent < messages && borrower_lies(&s) && drain(s.get) && drain(s.put))
				;
		} else {
			usleep(20000);
		}
		close(s.get);
		close(s.put);
	}
	printf("{\"mode\": \"liar-borrower\", \"messages\": %lu, \"sessions\": %lu}\n", sent, sessions);
	return 0;
}

/* ---- a lender that lies ---- */

static bool lender_welcomes(int fd, struct tide_hello *hello)
{
	struct tide_challenge challenge;
	struct tide_proof proof;

	set_patience(fd, SILENCE_SECONDS);
	if (!read_fully(fd, hello, sizeof(*hello)))
		return false;
	if (getrandom(challenge.nonce, sizeof(challenge.nonce), 0) != sizeof(challenge.nonce))
		die("getrandom");
	sign(lender_says, hello, challenge.nonce, 0, challenge.mac);
	return push(fd, &challenge, sizeof(challenge), false) && read_fully(fd, &proof, sizeof(proof));
}

static bool lender_grants(struct session *s, uint64_t bytes)
{
	struct { struct tide_frame frame; uint64_t bytes; } __packed grant = {
		.frame = { .length = htole32(sizeof(bytes)), .type = TIDE_GRANT }, .bytes = htole64(bytes),
	};

	return push(s->get, &grant, sizeof(grant), false);
}

static bool lender_begins(struct session *s, int listener)
{
	struct tide_hello hello;

	s->put = -1;
	s->get = accept(listener, NULL, NULL);
	if (s->get < 0 || !lender_welcomes(s->get, &hello) || hello.channel != TIDE_CHANNEL_GET)
		return false;
	if (!lender_grants(s, GRANT_BYTES))
		return false;
	s->put = accept(listener, NULL, NULL);
	return s->put >= 0 && lender_welcomes(s->put, &hello) && hello.channel == TIDE_CHANNEL_PUT;
}

static struct tide_page_id some_page(struct session *s)
{
	if (s->known_count && !draw(s, 20))
		return s->known[draw(s, s->known_count < KNOWN_PAGES ? s->known_count : KNOWN_PAGES)];
	return (struct tide_page_id) { little_number(s), little_number(s), little_number(s) };
}

/* Answers a request: with the versions asked for, or others, or none, and with pages that nobody ever put. */
static bool lender_answers(struct session *s, const struct tide_frame *request, const struct tide_get_item *asked)
{
	unsigned int n = le16toh(request->count), hits = 0, honest = draw(s, 4);
	struct tide_data_item *item = (void *)payload;

	if (!draw(s, 50))
		n = some(s, TIDE_GET_MAX);
	memset(item, 0, n * sizeof(*item));
	for (unsigned int i = 0; i < n && hits < LINES_MAX; i++) {
		if (!draw(s, 3))
			continue;
		item[i].version = honest && i < le16toh(request->count) ? asked[i].version : little_number(s);
		hits += !!item[i].version;
	}
	return say(s, s->get, TIDE_DATA, n, draw(s, 50) ? le64toh(request->id) : little_number(s),
		   n * sizeof(*item) + hits * PAGE, false);
}

/* What nobody asked for. */
static bool lender_lies(struct session *s)
{
	unsigned int n;

	switch (draw(s, 40)) {
	case 0:
		if (draw(s, BROKEN_ONE_IN / 40))
			return true;	/* the borrower hangs up on this one */
		fill_with_numbers(s, sizeof(uint64_t));
		return say(s, s->get, TIDE_PUT_ACK, some(s, TIDE_PUT_MAX), little_number(s), sizeof(uint64_t), false);
	case 1 ... 4:
		n = 1 + draw(s, 4);
		memset(payload, 0, n * (sizeof(struct tide_data_item) + PAGE));
		for (unsigned int i = 0; i < n; i++)
			((struct tide_data_item *)payload)[i].version = 1;
		return say(s, s->get, TIDE_DATA, n, random_next(&s->random),
			   n * (sizeof(struct tide_data_item) + PAGE), false);
	case 5 ... 6:
		*(uint64_t *)payload = htole64(draw(s, 2) ? GRANT_BYTES : random_next(&s->random));
		return say(s, s->get, TIDE_GRANT, 0, 0, sizeof(uint64_t), false);
	case 7 ... 12:
		return say(s, s->get, TIDE_PONG, 0, s->ping, 0, false);
	default:
		n = some(s, TIDE_NOTICE_MAX);
		for (unsigned int i = 0; i < n; i++)
			((struct tide_page_id *)payload)[i] = some_page(s);
		return say(s, s->get, TIDE_EVICTED, n, 0, n * sizeof(struct tide_page_id), false);
	}
}

/* Reads one frame and its payload; false when there is none, or the borrower sends something strange. */
static bool hear(int fd, struct tide_frame *frame, void *data, size_t room)
{
	return read_fully(fd, frame, sizeof(*frame)) && le32toh(frame->length) <= room &&
	       read_fully(fd, data, le32toh(frame->length));
}

static void *lender_hears_gets(void *argument)
{
	static unsigned char heard[sizeof(struct tide_get_head) + TIDE_GET_MAX * sizeof(struct tide_get_item)];
	struct session *s = argument;
	struct tide_frame frame;
	bool well = true;

	while (well && !s->over && hear(s->get, &frame, heard, sizeof(heard))) {
		pthread_mutex_lock(&s->lock);
		if (frame.type == TIDE_PING)
			s->ping = le64toh(frame.id);
		if (frame.type == TIDE_GET && draw(s, 20))	/* else it is never answered */
			well = lender_answers(s, &frame, (void *)(heard + sizeof(struct tide_get_head)));
		pthread_mutex_unlock(&s->lock);
	}
	s->over = true;
	return NULL;
}

static void *lender_hears_puts(void *argument)
{
	static unsigned char heard[TIDE_PUT_MAX * (sizeof(struct tide_put_item) + PAGE)];
	struct session *s = argument;
	struct tide_frame frame;
	bool well = true;

	while (well && !s->over && hear(s->put, &frame, heard, sizeof(heard))) {
		unsigned int n = le16toh(frame.count);

		pthread_mutex_lock(&s->lock);
		for (unsigned int i = 0; i < n; i++)
			s->known[s->known_count++ % KNOWN_PAGES] = ((struct tide_put_item *)heard)[i].id;
		*(uint64_t *)payload = s->truthful || draw(s, 4) ? ~0UL : random_next(&s->random);
		well = say(s, s->get, TIDE_PUT_ACK, n, le64toh(frame.id), sizeof(uint64_t), false);
		pthread_mutex_unlock(&s->lock);
	}
	s->over = true;
	return NULL;
}

/* Lies until the borrower has had enough, or `messages` were sent. */
static void lender_session(struct session *s, unsigned long messages)
{
	pthread_t ears[2];

	s->over = false;
	s->known_count = 0;
	s->ping = 0;
	if (pthread_create(&ears[0], NULL, lender_hears_gets, s) || pthread_create(&ears[1], NULL, lender_hears_puts, s))
		die("thread");
	while (!s->over && sent < messages) {
		pthread_mutex_lock(&s->lock);
		if (!lender_lies(s))
			s->over = true;
		pthread_mutex_unlock(&s->lock);
		usleep(PAUSE_US);
	}
	s->over = true;
	shutdown(s->get, SHUT_RDWR);
	shutdown(s->put, SHUT_RDWR);
	pthread_join(ears[0], NULL);
	pthread_join(ears[1], NULL);
}

/* stress liar-lender PORT key=HEX [messages=10000] [seed=N]: lends to whoever comes, and lies. */
int mode_liar_lender(const char *port)
{
	static struct session s = { .lock = PTHREAD_MUTEX_INITIALIZER };
	unsigned long messages = option("messages", 10000), sessions = 0;
	int listener = listen_on(strtol(port, NULL, 0));

	read_key();
	s.random = random_seed(0);
	while (sent < messages) {
		if (lender_begins(&s, listener)) {
			sessions++;
			lender_session(&s, messages);
		}
		close(s.get);
		close(s.put);
	}
	printf("{\"mode\": \"liar-lender\", \"messages\": %lu, \"sessions\": %lu}\n", sent, sessions);
	return 0;
}

/* ---- a lender that says yes to everything ---- */

/* It has no page, and never will. */
static void *yes_hears_gets(void *argument)
{
	static unsigned char heard[sizeof(struct tide_get_head) + TIDE_GET_MAX * sizeof(struct tide_get_item)];
	struct session *s = argument;
	struct tide_frame frame;
	bool well = true;

	while (well && hear(s->get, &frame, heard, sizeof(heard))) {
		size_t length = 0;

		pthread_mutex_lock(&s->lock);
		if (frame.type == TIDE_GET)
			length = le16toh(frame.count) * sizeof(struct tide_data_item);
		if (frame.type == TIDE_GET || frame.type == TIDE_PING) {
			frame.type = frame.type == TIDE_GET ? TIDE_DATA : TIDE_PONG;
			frame.length = htole32(length);
			frame.flags = 0;
			memset(payload, 0, length);
			well = tell(s->get, &frame, length, false);
		}
		pthread_mutex_unlock(&s->lock);
	}
	shutdown(s->put, SHUT_RDWR);
	return NULL;
}

/* Says that the pages beside one, which were put at the same time, are gone: another lender may have them. */
static bool slander(struct session *s, const struct tide_page_id *id)
{
	struct tide_frame frame = {
		.type = TIDE_EVICTED, .count = htole16(2 * SLANDER_PAGES),
		.length = htole32(2 * SLANDER_PAGES * sizeof(*id)),
	};
	struct tide_page_id *page = (void *)payload;

	for (long i = -SLANDER_PAGES; i <= SLANDER_PAGES; i++)
		if (i)
			*page++ = (struct tide_page_id) {
				id->file, htole64(le64toh(id->index) + i), htole64(le64toh(id->version) + i),
			};
	return tell(s->get, &frame, 2 * SLANDER_PAGES * sizeof(*id), false);
}

/* Keeps every page, it says. */
static bool yes_to_puts(struct session *s, struct tide_frame *frame, const struct tide_put_item *put)
{
	unsigned int n = le16toh(frame->count);
	bool well;

	frame->type = TIDE_PUT_ACK;
	frame->length = htole32(sizeof(uint64_t));
	pthread_mutex_lock(&s->lock);
	*(uint64_t *)payload = ~0UL;
	well = tell(s->get, frame, sizeof(uint64_t), false);
	for (unsigned int i = 0; well && option("slander", 0) && i < n; i++)
		well = slander(s, &put[i].id);
	pthread_mutex_unlock(&s->lock);
	return well;
}

static void yes_session(struct session *s)
{
	static unsigned char heard[TIDE_PUT_MAX * (sizeof(struct tide_put_item) + PAGE)];
	struct tide_frame frame;
	pthread_t ear;

	set_patience(s->get, 0);	/* nobody need say anything */
	set_patience(s->put, 0);
	if (pthread_create(&ear, NULL, yes_hears_gets, s))
		die("thread");
	while (hear(s->put, &frame, heard, sizeof(heard)) && yes_to_puts(s, &frame, (void *)heard))
		;
	shutdown(s->get, SHUT_RDWR);
	pthread_join(ear, NULL);
}

/* stress yes-lender PORT key=HEX [grant=64] [slander=0]: keeps every page and has none; speaks of others' if asked to. */
int mode_yes_lender(const char *port)
{
	static struct session s = { .lock = PTHREAD_MUTEX_INITIALIZER };
	int listener = listen_on(strtol(port, NULL, 0));

	read_key();
	for (;;) {
		if (lender_begins(&s, listener))
			yes_session(&s);
		close(s.get);
		close(s.put);
	}
/* ---- lenders that keep to the protocol's words, but not to its time ---- */

/* Has the other end hung up, within so long? */
static bool hangs_up(int fd, int milliseconds)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	double end = now() + milliseconds / 1e3;

	while (!time_is_up(end))
		if (poll(&wait, 1, 10) > 0 && !drain(fd))
			return true;
	return false;
}

/* Acknowledges a large batch when only its header is there; does the borrower hang up on that? */
static bool acknowledges_early(struct session *s)
{
	static unsigned char heard[TIDE_PUT_MAX * (sizeof(struct tide_put_item) + PAGE)];
	struct tide_frame frame;

	memset(payload, 0xff, sizeof(uint64_t));
	while (read_fully(s->put, &frame, sizeof(frame))) {
		bool early = le16toh(frame.count) >= TIDE_PUT_MAX / 2;

		if (!early && !read_fully(s->put, heard, le32toh(frame.length)))
			break;
		if (!say(s, s->get, TIDE_PUT_ACK, le16toh(frame.count), le64toh(frame.id), sizeof(uint64_t), true))
			break;
		if (early)
			return hangs_up(s->get, SILENCE_SECONDS * 1000);
	}
	return false;
}

/* stress early-lender PORT key=HEX [sessions=3]: acknowledges what it has not got yet, once a session. */
int mode_early_lender(const char *port)
{
	static struct session s = { .truthful = true };
	unsigned long sessions = option("sessions", 3), begun = 0, ended = 0;
	int listener = listen_on(strtol(port, NULL, 0)), little = PAGE;

	read_key();
	s.random = random_seed(0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
	while (begun < sessions) {
		if (lender_begins(&s, listener)) {
			begun++;
			ended += acknowledges_early(&s);
		}
		close(s.get);
		close(s.put);
	}
	printf("{\"mode\": \"early-lender\", \"sessions\": %lu, \"ended\": %lu}\n", begun, ended);
	return 0;
}

#define DRIP_US		5000

/* Sends a byte at a time, until the borrower hangs up. */
static bool drip(int fd, const unsigned char *data, size_t length)
{
	while (length-- && push(fd, data++, 1, true))
		usleep(DRIP_US);
	return false;
}

/* Answers a request: all of it is there, and comes whole until what `how` names, and from there in drips or never. */
static bool answers_slowly(struct session *s, const struct tide_frame *request, const struct tide_get_item *asked,
			   const char *how)
{
	unsigned int n = le16toh(request->count);
	size_t items = n * sizeof(struct tide_data_item), length = items + n * PAGE;
	struct tide_frame frame = {
		.length = htole32(length), .type = TIDE_DATA, .count = request->count, .id = request->id,
	};
	size_t whole = !strcmp(how, "items") ? 1 : items + n / 2 * PAGE;

	if (!strcmp(how, "hang-up"))
		return false;
	memset(payload, 0, length);
	for (unsigned int i = 0; i < n; i++)
		((struct tide_data_item *)payload)[i].version = asked[i].version;
	return push(s->get, &frame, sizeof(frame), false) && push(s->get, payload, whole, false) &&
	       drip(s->get, payload + whole, length - whole);
}

/* stress slow-lender PORT key=HEX how=items|pages|hang-up [sessions=1]: keeps what it gets, and hardly gives it back. */
int mode_slow_lender(const char *port)
{
	static unsigned char heard[sizeof(struct tide_get_head) + TIDE_GET_MAX * sizeof(struct tide_get_item)];
	static struct session s = { .lock = PTHREAD_MUTEX_INITIALIZER, .truthful = true };
	unsigned long sessions = option("sessions", 1), begun = 0, asked = 0;
	int listener = listen_on(strtol(port, NULL, 0));
	double answering = 0;

	read_key();
	s.random = random_seed(0);
	while (asked < sessions) {
		struct tide_frame frame;
		pthread_t ear;
		bool well = lender_begins(&s, listener);

		if (!well)
			goto out;
		begun++;
		s.over = false;
		if (pthread_create(&ear, NULL, lender_hears_puts, &s))
			die("thread");
		while (well && hear(s.get, &frame, heard, sizeof(heard))) {
			double start = now();

			pthread_mutex_lock(&s.lock);
			if (frame.type == TIDE_PING)
				well = say(&s, s.get, TIDE_PONG, 0, le64toh(frame.id), 0, false);
			if (frame.type == TIDE_GET) {
				asked++;
				well = answers_slowly(&s, &frame, (void *)(heard + sizeof(struct tide_get_head)),
						      option_text("how", "pages"));
				answering += now() - start;
			}
			pthread_mutex_unlock(&s.lock);
		}
		s.over = true;
		shutdown(s.put, SHUT_RDWR);
		pthread_join(ear, NULL);
out:
		close(s.get);
		close(s.put);
	}
	printf("{\"mode\": \"slow-lender\", \"sessions\": %lu, \"asked\": %lu, \"seconds\": %.1f}\n", begun, asked,
	       answering);
/* ---- a borrower that means what it says, and does one thing that is unusual ---- */

#define FILE_NUMBER	7UL
#define WANTED		(1UL << 30)
#define SIP		4096	/* bytes that a slow one reads at once */
#define SIP_US		100000

static unsigned long stored, hits, evicted;

static bool tell(int fd, uint8_t type, unsigned int count, const void *data, size_t length)
{
	struct tide_frame frame = { .length = htole32(length), .type = type, .count = htole16(count) };

	return push(fd, &frame, sizeof(frame), false) && push(fd, data, length, false);
}

static bool want(struct session *s, uint64_t bytes)
{
	bytes = htole64(bytes);
	return tell(s->get, TIDE_RESIZE, 0, &bytes, sizeof(bytes));
}

/* How much may wait to be read. */
static void set_room(int fd, int bytes)
{
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* Reads frames until one of a type has come; counts what they say. */
static bool hear_until(struct session *s, int type)
{
	struct tide_frame frame;

	do {
		if (!hear(s->get, &frame, payload, sizeof(payload)))
			return false;
		if (frame.type == TIDE_EVICTED)
			evicted += le16toh(frame.count);
		if (frame.type == TIDE_PUT_ACK)
			stored += __builtin_popcountl(*(uint64_t *)payload);
		for (unsigned int i = 0; frame.type == TIDE_DATA && i < le16toh(frame.count); i++)
			hits += !!((struct tide_data_item *)payload)[i].version;
	} while (frame.type != type);
	return true;
}

/* Page i is put as version i + 1. */
static bool put_some(struct session *s, unsigned long first, unsigned int count)
{
	struct tide_put_item *item = (void *)payload;

	memset(payload, 0, count * (sizeof(*item) + PAGE));
	for (unsigned int i = 0; i < count; i++)
		item[i].id = (struct tide_page_id) {
			htole64(FILE_NUMBER), htole64(first + i), htole64(first + i + 1),
		};
	return tell(s->put, TIDE_PUT, count, payload, count * (sizeof(*item) + PAGE)) && hear_until(s, TIDE_PUT_ACK);
}

static bool put_all(struct session *s, unsigned long pages)
{
	for (unsigned long i = 0; i < pages; i += TIDE_PUT_MAX)
		if (!put_some(s, i, pages - i < TIDE_PUT_MAX ? pages - i : TIDE_PUT_MAX))
			return false;
	return true;
}

static bool ask_some(struct session *s, unsigned long first, unsigned int count)
{
	struct {
		struct tide_get_head head;
		struct tide_get_item item[TIDE_GET_MAX];
	} __packed get = { .head.file = htole64(FILE_NUMBER) };

	for (unsigned int i = 0; i < count; i++)
		get.item[i] = (struct tide_get_item) { htole64(first + i), htole64(first + i + 1) };
	return tell(s->get, TIDE_GET, count, &get, sizeof(get.head) + count * sizeof(get.item[0]));
}

static bool ask_all(struct session *s, unsigned long pages)
{
	for (unsigned long i = 0; i < pages; i += TIDE_GET_MAX)
		if (!ask_some(s, i, pages - i < TIDE_GET_MAX ? pages - i : TIDE_GET_MAX) || !hear_until(s, TIDE_DATA))
			return false;
	return true;
}

static bool forget_below(struct session *s, uint64_t version)
{
	struct tide_forget_item item = { htole64(FILE_NUMBER), 0, htole64(1UL << 60), htole64(version) };

	return tell(s->get, TIDE_FORGET, 1, &item, sizeof(item));
}

/* Asks for much, and takes it in sips. */
static void drain_slowly(struct session *s, double until)
{
	char sip[SIP];

	for (int i = 0; i < 4; i++)
		ask_some(s, 0, TIDE_GET_MAX);
	while (!time_is_up(until) && recv(s->get, sip, sizeof(sip), 0) > 0)
		usleep(SIP_US);
}

static void stay(struct session *s, double until)
{
	while (!time_is_up(until) && tell(s->get, TIDE_PING, 0, NULL, 0) && hear_until(s, TIDE_PONG))
		usleep(SIP_US);
}

/*
 * stress borrower ADDRESS key=HEX [name=pairing] [port=7470] [pages=1000] [forget=0] [ask=1] [slow=0] [deaf=0] [stay=0]: puts
 * so many pages of a file, forgets all of it that is of a version below `forget`, asks for all, and then, for so many
 * seconds, reads what it is sent slowly, or not at all, or behaves.
 */
int mode_borrower(const char *address)
{
	static struct session s;
	unsigned long pages = option("pages", 1000);

	read_key();
	s.random = random_seed(0);
	if (!borrower_begins(&s, address) || !want(&s, WANTED))
		die("session");
	if (!put_all(&s, pages) || (option("forget", 0) && !forget_below(&s, option("forget", 0))))
		die("put");
	if (option("ask", 1) && !ask_all(&s, pages))
		die("get");
	set_room(s.get, SIP);
	if (option("slow", 0))
		drain_slowly(&s, now() + option("slow", 0));
	sleep(option("deaf", 0));
	set_room(s.get, PAYLOAD_MAX);
	stay(&s, now() + option("stay", 0));
	printf("{\"mode\": \"borrower\", \"stored\": %lu, \"hits\": %lu, \"evicted\": %lu}\n", stored, hits, evicted);
	return 0;
}
