// SPDX-License-Identifier: GPL-2.0-only
/* 6.19, "net: Convert proto_ops connect() callbacks to use sockaddr_unsized" */
#include <linux/net.h>

#ifdef TIDE_NEWER
int probe(struct socket *sock, struct sockaddr_unsized *address, int size)
#else
int probe(struct socket *sock, struct sockaddr *address, int size)
#endif
{
	return kernel_bind(sock, address, size) ?: kernel_connect(sock, address, size, 0);
}
