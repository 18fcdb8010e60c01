/* SPDX-License-Identifier: GPL-2.0-only */
/* Accepting connections: listen.c. */
#ifndef TIDE_LISTEN_H
#define TIDE_LISTEN_H

#include <linux/types.h>

struct tide_borrower;

extern u16 tide_port;	/* set through configfs */

int tide_listen(void);
void tide_unlisten(void);
bool tide_listening(void);
void tide_tell(struct tide_borrower *borrower, unsigned long delay);
void tide_expire_in(struct tide_borrower *borrower, unsigned int ms);
void tide_connections_break(void);
bool tide_borrower_alone(struct tide_borrower *borrower);
void tide_borrower_part(struct tide_borrower *borrower);

#endif /* TIDE_LISTEN_H */
