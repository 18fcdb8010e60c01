/* SPDX-License-Identifier: GPL-2.0-only */
/* To whom this guest lends, and how much: lending.c. */
#ifndef TIDE_LENDING_H
#define TIDE_LENDING_H

#include <linux/types.h>

struct tide_borrower;
struct tide_identity;

struct tide_borrower *tide_borrower_create(const char *name);
int tide_borrower_enable(struct tide_borrower *borrower);
void tide_borrower_disable(struct tide_borrower *borrower);
void tide_borrower_destroy(struct tide_borrower *borrower);
int tide_borrower_identify(struct tide_borrower *borrower,
			   const struct tide_identity *identity);
void tide_borrower_requota(struct tide_borrower *borrower);
const char *tide_borrower_state_name(struct tide_borrower *borrower);
u64 tide_borrower_lent_pages(struct tide_borrower *borrower);
unsigned int tide_borrower_connections(struct tide_borrower *borrower);
void tide_lending_shrink(void);
void tide_lending_renounce(void);
void tide_linger_set(unsigned int seconds);
void tide_lending_hold(bool held);

#endif /* TIDE_LENDING_H */
