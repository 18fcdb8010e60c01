/* SPDX-License-Identifier: GPL-2.0-only */
/* What there is with each borrower, connected or not: sessions.c. Lenders: borrower/session.h. */
#ifndef TIDE_SESSIONS_H
#define TIDE_SESSIONS_H

#include <linux/types.h>

struct tide_borrower;
struct tide_connection;
struct tide_hello;
struct work_struct;

/* What all borrowers are told, set through configfs. */
extern unsigned int tide_linger_s;
extern bool tide_lending_held;

int tide_attach_get(struct tide_connection *c, const struct tide_hello *hello);
int tide_attach_more(struct tide_connection *c, const struct tide_hello *hello);
void tide_detach(struct tide_connection *c);
void tide_regrant(struct tide_borrower *borrower);
unsigned int tide_session_lanes(const struct tide_borrower *borrower);
void tide_session_look(struct tide_borrower *borrower);
void tide_session_expire(struct work_struct *work);
void tide_session_resize(struct work_struct *work);
void tide_session_renounce(struct tide_borrower *borrower);

#endif /* TIDE_SESSIONS_H */
