/* SPDX-License-Identifier: GPL-2.0-only */
/* What a lender answers, and what it says by itself: serve.c. */
#ifndef TIDE_SERVE_H
#define TIDE_SERVE_H

struct tide_connection;
struct work_struct;

void tide_notify(struct work_struct *work);
void tide_serve_session(struct tide_connection *c);

#endif /* TIDE_SERVE_H */
