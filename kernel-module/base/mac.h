/* SPDX-License-Identifier: GPL-2.0-only */
/* A short text's tag, quickly: mac.c. */
#ifndef TIDE_MAC_H
#define TIDE_MAC_H

#include <linux/types.h>

#define TIDE_MAC_SIZE		16
#define TIDE_MAC_HEAD_SIZE	16

struct tide_mac_key {
	u64 word[2];
};

void tide_mac_key(struct tide_mac_key *key, const u8 *bytes);
void tide_mac(const struct tide_mac_key *key, u64 number, const void *head, const void *text,
	      size_t size, u8 *tag);

#endif /* TIDE_MAC_H */
