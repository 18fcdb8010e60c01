/* SPDX-License-Identifier: GPL-2.0-only */
/* From whom this guest borrows: borrowing.c. */
#ifndef TIDE_BORROWING_H
#define TIDE_BORROWING_H

#include <linux/socket.h>
#include <linux/types.h>

struct tide_identity;
struct tide_lender;

struct tide_lender *tide_lender_create(const char *name);
int tide_lender_enable(struct tide_lender *lender);
void tide_lender_disable(struct tide_lender *lender);
void tide_lender_destroy(struct tide_lender *lender);
int tide_lender_identify(struct tide_lender *lender, const struct tide_identity *identity);
void tide_lender_move(struct tide_lender *lender, const struct sockaddr_storage *address,
		      u16 port);
void tide_lender_resize(struct tide_lender *lender);
void tide_lenders_renounce(void);

#endif /* TIDE_BORROWING_H */
