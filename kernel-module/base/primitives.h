/* SPDX-License-Identifier: GPL-2.0-only */
/* What the handshake needs of the kernel's crypto: SHA-256, its HMAC, X25519, AES-256-GCM. */
#ifndef TIDE_PRIMITIVES_H
#define TIDE_PRIMITIVES_H

#include <linux/types.h>

#define TIDE_HASH_SIZE		32	/* SHA-256 */
#define TIDE_POINT_SIZE		32	/* X25519: secrets and points */
#define TIDE_AEAD_KEY_SIZE	32	/* AES-256 */
#define TIDE_AEAD_TAG_SIZE	16
#define TIDE_SHORT_MAX		128	/* bytes that are hashed or sealed at once, */
#define TIDE_AD_MAX		32	/* and that are authenticated with them */

/* A secret scalar and its point. */
struct tide_keypair {
	u8 secret[TIDE_POINT_SIZE];
	u8 point[TIDE_POINT_SIZE];
};

struct tide_aead;

int tide_hash(u8 *hash, const void *first, size_t first_size, const void *second,
	      size_t second_size);
int tide_hmac(u8 *mac, const u8 *key, const void *data, size_t size);

int tide_keypair_draw(struct tide_keypair *pair);
int tide_keypair_derive(struct tide_keypair *pair);
int tide_agree(u8 *shared, const u8 *secret, const u8 *point);

struct tide_aead *tide_aead_create(void);
void tide_aead_free(struct tide_aead *aead);
int tide_aead_key(struct tide_aead *aead, const u8 *key);
int tide_aead_seal(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size,
		   const void *text, size_t size, u8 *sealed);
int tide_aead_open(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size,
		   const u8 *sealed, size_t size, void *text);

#endif /* TIDE_PRIMITIVES_H */
