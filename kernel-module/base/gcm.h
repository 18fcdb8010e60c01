/* SPDX-License-Identifier: GPL-2.0-only */
/* AES-256 in GCM, as the kernel's crypto API has it: gcm.c. */
#ifndef TIDE_GCM_H
#define TIDE_GCM_H

#include <linux/crypto.h>
#include <linux/types.h>

#define TIDE_GCM_NONCE_SIZE	12

struct aead_request;
struct crypto_aead;
struct scatterlist;

/**
 * struct tide_gcm - a key, and all that is needed to use it; one at a time does
 * @tfm: the cipher, with its key
 * @request: to it
 * @wait: for its end
 */
struct tide_gcm {
	struct crypto_aead *tfm;
	struct aead_request *request;
	struct crypto_wait wait;
};

int tide_gcm_init(struct tide_gcm *gcm, unsigned int tag_size);
void tide_gcm_free(struct tide_gcm *gcm);
const char *tide_gcm_driver(const struct tide_gcm *gcm);
int tide_gcm_key(struct tide_gcm *gcm, const u8 *key);
void tide_gcm_nonce(u8 *nonce, u64 number);
int tide_gcm_encrypt(struct tide_gcm *gcm, struct scatterlist *from, struct scatterlist *to,
		     unsigned int ad_size, unsigned int size, u8 *nonce);
int tide_gcm_decrypt(struct tide_gcm *gcm, struct scatterlist *from, struct scatterlist *to,
		     unsigned int ad_size, unsigned int size, u8 *nonce);

#endif /* TIDE_GCM_H */
