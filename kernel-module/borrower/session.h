/* SPDX-License-Identifier: GPL-2.0-only */
/* A borrower's sessions with its lenders: session.c. */
#ifndef TIDE_SESSION_H
#define TIDE_SESSION_H

struct work_struct;

int tide_session_main(void *arg);
void tide_session_tick(struct work_struct *work);

#endif /* TIDE_SESSION_H */
