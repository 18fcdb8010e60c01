// SPDX-License-Identifier: GPL-2.0
/* TCP: the raw round trip to compare a get with, and peers that do not behave. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stress.h"

#define FIRST_HOST	16
#define REQUEST_BYTES	32
#define PIECE		128L	/* pages that are written or read at once */
#define DEFAULT_PORT	7471

static void set_option(int socket, int level, int name)
{
	int on = 1;

	setsockopt(socket, level, name, &on, sizeof(on));
}

static bool read_fully(int fd, void *data, size_t length)
{
	while (length) {
		ssize_t n = read(fd, data, length);

		if (n <= 0)
			return false;
		data = (char *)data + n;
		length -= n;
	}
	return true;
}

static struct sockaddr_in peer_address(const char *address, int port)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, address, &peer.sin_addr) != 1) {
		errno = EINVAL;
		die(address);
	}
	return peer;
}

static int connect_to(const char *address, int port)
{
	struct sockaddr_in peer = peer_address(address, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		die("socket");
	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer))) {
		close(fd);
		return -1;
	}
	set_option(fd, IPPROTO_TCP, TCP_NODELAY);
	return fd;
}

static int listen_on(int port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	set_option(listener, SOL_SOCKET, SO_REUSEADDR);
	if (bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 5))
		die("listen");
	return listener;
}

static bool send_pages(int fd, const struct page *pages, long count)
{
	for (long done = 0; done < count; done += PIECE) {
		long length = (count - done < PIECE ? count - done : PIECE) * PAGE;

		if (write(fd, pages, length) != length)
			return false;
	}
	return true;
}

static bool receive_pages(int fd, struct page *pages, long count)
{
	for (long done = 0; done < count; done += PIECE)
		if (!read_fully(fd, pages, (count - done < PIECE ? count - done : PIECE) * PAGE))
			return false;
	return true;
}

/* stress server PORT: answers each 32-byte request with the pages it asks for, one client after the other, for ever. */
int mode_server(const char *port)
{
	int listener = listen_on(strtol(port, NULL, 0));
	struct page *pages = pages_alloc(PIECE);
	long request[REQUEST_BYTES / sizeof(long)];

	for (long i = 0; i < PIECE; i++)
		page_make(&pages[i], 1, i, 1);
	signal(SIGTERM, SIG_DFL);	/* which is how it ends, with nothing to report */
	for (;;) {
		int client = accept(listener, NULL, NULL);

		set_option(client, IPPROTO_TCP, TCP_NODELAY);
		while (read_fully(client, request, sizeof(request)))
			if (!send_pages(client, pages, request[0]))
				break;
		close(client);
	}
}

/* stress client ADDRESS [port=7471] [requests=2000] [pages=1]: the round trip of so many pages over plain TCP. */
int mode_client(const char *address)
{
	int fd = connect_to(address, option("port", DEFAULT_PORT));
	long requests = option("requests", 2000);
	struct latency latency = { .count = 0 };
	struct page *answer = pages_alloc(PIECE);
	long request[REQUEST_BYTES / sizeof(long)] = { option("pages", 1) };

	if (fd < 0)
		die(address);
	for (long i = 0; i < requests; i++) {
		double start = now();

		if (write(fd, request, sizeof(request)) != sizeof(request) || !receive_pages(fd, answer, request[0]))
			die("round trip");
		latency_add(&latency, now() - start);
	}
	printf("{\"mode\": \"client\", \"requests\": %ld, ", requests);
	latency_print(&latency);
	printf("}\n");
	return 0;
}

/* stress garbage ADDRESS [port=7470] [connections=200] [seed=N]: connects and sends random bytes of random length. */
int mode_garbage(const char *address)
{
	long connections = option("connections", 200), accepted = 0;
	uint64_t state = random_seed(0);
	uint64_t bytes[512];

	for (long i = 0; i < connections; i++) {
		int fd = connect_to(address, option("port", 7470));

		if (fd < 0)
			continue;
		accepted++;
		for (size_t word = 0; word < 512; word++)
			bytes[word] = random_next(&state);
		if (send(fd, bytes, random_next(&state) % sizeof(bytes), MSG_NOSIGNAL) < 0)
			accepted--;	/* refused before it could be sent: as good */
		if (i % 2)
			usleep(1000);	/* every other one leaves at once */
		close(fd);
	}
	printf("{\"mode\": \"garbage\", \"connections\": %ld, \"accepted\": %ld}\n", connections, accepted);
	return 0;
}

/* Sends a byte on each, every so many milliseconds, until the time is up; returns how many have been cut by then. */
static long trickle(const int *fds, long count, long every_ms, double until)
{
	long cut = 0;

	while (!time_is_up(until)) {
		usleep(every_ms * 1000);
		for (long i = 0; i < count; i++)
			send(fds[i], "", 1, MSG_NOSIGNAL);
	}
	for (long i = 0; i < count; i++)
		cut += send(fds[i], "", 1, MSG_NOSIGNAL) < 0;
	return cut;
}

/* Has a socket come from one of this machine's addresses: the peer's with another last byte, FIRST_HOST or one after it. */
static void come_from(int fd, struct sockaddr_in peer, long which)
{
	peer.sin_port = 0;
	peer.sin_addr.s_addr = htonl((ntohl(peer.sin_addr.s_addr) & ~0xffU) | (FIRST_HOST + which));
	if (bind(fd, (struct sockaddr *)&peer, sizeof(peer)))
		die("bind");
}

/*
 * stress half-open ADDRESS [port=7470] [connections=50] [addresses=0] [seconds=5] [every=0]: connects, from so many
 * addresses by turns, says nothing, or a byte every so many milliseconds, and stays.
 */
int mode_half_open(const char *address)
{
	struct sockaddr_in peer = peer_address(address, option("port", 7470));
	long connections = option("connections", 50), every = option("every", 0), cut = 0;
	long addresses = option("addresses", 0);
	int fds[connections];
	double until;

	for (long i = 0; i < connections; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		if (fd < 0)
			die("socket");
		if (addresses)
			come_from(fd, peer, i % addresses);
		if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) && errno != EINPROGRESS)
			io_failed("connect");
		fds[i] = fd;
	}
	until = now() + option("seconds", 5);
	if (every)
		cut = trickle(fds, connections, every, until);
	else
		sleep(option("seconds", 5));
	printf("{\"mode\": \"half-open\", \"connections\": %ld, \"cut\": %ld}\n", connections, cut);
	return 0;
}
