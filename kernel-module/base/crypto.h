/* SPDX-License-Identifier: GPL-2.0-only */
/* Encryption of pages on their way out and back: crypto.c. */
#ifndef TIDE_CRYPTO_H
#define TIDE_CRYPTO_H

#include <linux/types.h>

#include "uapi/wire.h"

struct page;
struct tide_cipher;

int tide_crypto_init(void);
struct tide_cipher *tide_cipher_create(unsigned int threads);
void tide_cipher_free(struct tide_cipher *c);
int tide_cipher_renew(struct tide_cipher *put, struct tide_cipher *get, const u8 *contribution);
void tide_cipher_salt(struct tide_cipher *c);
int tide_encrypt(struct tide_cipher *c, const struct tide_page_id *id,
		 struct page *from, struct page *to, u8 *tag);
int tide_decrypt(struct tide_cipher *c, unsigned int thread, const struct tide_page_id *id,
		 struct page *page, const u8 *tag);

#endif /* TIDE_CRYPTO_H */
