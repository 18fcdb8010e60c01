/* SPDX-License-Identifier: GPL-2.0-only */
/* Who a guest is: the public half of a key pair that its module drew when it was loaded. */
#ifndef TIDE_IDENTITY_H
#define TIDE_IDENTITY_H

#include <linux/string.h>
#include <linux/types.h>

#include "base/primitives.h"

#define TIDE_IDENTITY_KIND	"x25519:"	/* other curves will have another name */
#define TIDE_IDENTITY_TEXT	(sizeof(TIDE_IDENTITY_KIND) + 2 * TIDE_POINT_SIZE)

struct tide_identity {
	u8 point[TIDE_POINT_SIZE];
};

static inline bool tide_identity_is(const struct tide_identity *a, const struct tide_identity *b)
{
	return !memcmp(a, b, sizeof(*a));
}

int tide_identity_renew(void);
void tide_identity_keys(struct tide_keypair *own);
void tide_identity_exit(void);
void tide_identity_print(const struct tide_identity *identity, char *text);
void tide_identity_own(struct tide_identity *identity);
const char *tide_identity_parse(const char *text, size_t size, struct tide_identity *identity);

#endif /* TIDE_IDENTITY_H */
