/* SPDX-License-Identifier: GPL-2.0-only */
/* Accepting connections: listen.c. */
#ifndef TIDE_LISTEN_H
#define TIDE_LISTEN_H

#include <linux/types.h>

#define TIDE_MAX_BORROWERS	64

extern u16 tide_port;	/* set through configfs */

int tide_listen(void);
void tide_unlisten(void);
bool tide_listening(void);

#endif /* TIDE_LISTEN_H */
