/* SPDX-License-Identifier: GPL-2.0 */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>
#include <stddef.h>

/* A connection, or -1 when it is refused. */
int connect_to(const char *address, int port);

/* A socket that listens. */
int listen_on(int port);

/* False at the end of the stream, and after an error. */
bool read_fully(int fd, void *data, size_t length);

#endif
