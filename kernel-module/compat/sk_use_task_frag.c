// SPDX-License-Identifier: GPL-2.0-only
/* 6.2, taken back into 6.1, "net: Introduce sk_use_task_frag in struct sock." */
#include <net/sock.h>

void probe(struct sock *sk)
{
	sk->sk_allocation = GFP_NOIO;
#ifdef TIDE_NEWER
	sk->sk_use_task_frag = false;
#endif
}
