// SPDX-License-Identifier: GPL-2.0-only
/*
 * The four functions that the handshake is made of, as this kernel has them:
 * SHA-256 and X25519 from its library, AES-256-GCM from its crypto API.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/curve25519.h>
#include <crypto/hmac.h>
#include <crypto/sha2.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/gcm.h"
#include "base/primitives.h"

/* ------------------------------------------------------------------ */
/* hashes							       */
/* ------------------------------------------------------------------ */

/**
 * tide_hash() - SHA-256 of two strings, one after the other
 * @hash: TIDE_HASH_SIZE bytes; may be the first string
 * @first: at most SHA256_BLOCK_SIZE bytes
 * @first_size: how many
 * @second: at most TIDE_SHORT_MAX bytes
 * @second_size: how many
 *
 * Return: 0, or -EMSGSIZE.
 */
int tide_hash(u8 *hash, const void *first, size_t first_size, const void *second,
	      size_t second_size)
{
	u8 both[SHA256_BLOCK_SIZE + TIDE_SHORT_MAX];

	if (first_size > SHA256_BLOCK_SIZE || second_size > TIDE_SHORT_MAX)
		return -EMSGSIZE;
	memcpy(both, first, first_size);
	memcpy(both + first_size, second, second_size);
	sha256(both, first_size + second_size, hash);
	memzero_explicit(both, sizeof(both));
	return 0;
}

/**
 * tide_hmac() - HMAC-SHA256
 * @mac: TIDE_HASH_SIZE bytes
 * @key: TIDE_HASH_SIZE bytes
 * @data: at most TIDE_SHORT_MAX bytes
 * @size: how many
 *
 * Return: 0, or -EMSGSIZE.
 */
int tide_hmac(u8 *mac, const u8 *key, const void *data, size_t size)
{
	u8 pad[SHA256_BLOCK_SIZE], inner[TIDE_HASH_SIZE];
	unsigned int i;
	int err;

	for (i = 0; i < sizeof(pad); i++)
		pad[i] = (i < TIDE_HASH_SIZE ? key[i] : 0) ^ HMAC_IPAD_VALUE;
	err = tide_hash(inner, pad, sizeof(pad), data, size);
	for (i = 0; i < sizeof(pad); i++)
		pad[i] ^= HMAC_IPAD_VALUE ^ HMAC_OPAD_VALUE;
	if (!err)
		err = tide_hash(mac, pad, sizeof(pad), inner, sizeof(inner));
	memzero_explicit(pad, sizeof(pad));
	memzero_explicit(inner, sizeof(inner));
	return err;
}

/* ------------------------------------------------------------------ */
/* the curve							       */
/* ------------------------------------------------------------------ */

/**
 * tide_keypair_derive() - the point of a secret
 * @pair: @secret is set
 *
 * Return: 0, or -EINVAL for a secret that has none.
 */
int tide_keypair_derive(struct tide_keypair *pair)
{
	return curve25519_generate_public(pair->point, pair->secret) ? 0 : -EINVAL;
}

/**
 * tide_keypair_draw() - a fresh key pair
 * @pair: to be filled
 *
 * Context: process; waits for the kernel's random numbers when they are young.
 * Return: 0 or a negative errno.
 */
int tide_keypair_draw(struct tide_keypair *pair)
{
	int err = get_random_bytes_wait(pair->secret, sizeof(pair->secret));

	if (err)
		return err;
	curve25519_clamp_secret(pair->secret);
	return tide_keypair_derive(pair);
}

/**
 * tide_agree() - the secret that two key pairs share
 * @shared: TIDE_POINT_SIZE bytes
 * @secret: of one
 * @point: of the other
 *
 * Return: 0, or -EBADMSG when the point contributes nothing.
 */
int tide_agree(u8 *shared, const u8 *secret, const u8 *point)
{
	return curve25519(shared, secret, point) ? 0 : -EBADMSG;
}

/* ------------------------------------------------------------------ */
/* AES-GCM							       */
/* ------------------------------------------------------------------ */

/**
 * struct tide_aead - a key, and all that is needed to use it
 * @gcm: the cipher
 * @list: @bytes
 * @nonce: of this message
 * @bytes: what is authenticated, then what is encrypted, then the tag; here,
 *	for a caller's memory may be of a kind that the cipher cannot reach
 */
struct tide_aead {
	struct tide_gcm gcm;
	struct scatterlist list;
	u8 nonce[TIDE_GCM_NONCE_SIZE];
	u8 bytes[TIDE_AD_MAX + TIDE_SHORT_MAX + TIDE_AEAD_TAG_SIZE];
};

void tide_aead_free(struct tide_aead *aead)
{
	if (!aead)
		return;
	tide_gcm_free(&aead->gcm);
	kfree_sensitive(aead);
}

/**
 * tide_aead_create() - allocate what is needed to use a key
 *
 * Context: process.
 * Return: with no key in it yet, or an error pointer.
 */
struct tide_aead *tide_aead_create(void)
{
	struct tide_aead *aead = kzalloc(sizeof(*aead), GFP_KERNEL);
	int err;

	if (!aead)
		return ERR_PTR(-ENOMEM);
	err = tide_gcm_init(&aead->gcm, TIDE_AEAD_TAG_SIZE);
	if (err) {
		tide_aead_free(aead);
		return ERR_PTR(err);
	}
	return aead;
}

int tide_aead_key(struct tide_aead *aead, const u8 *key)
{
	return tide_gcm_key(&aead->gcm, key);
}

static void tide_aead_set(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size,
			  const void *input, size_t size)
{
	memcpy(aead->bytes, ad, ad_size);
	memcpy(aead->bytes + ad_size, input, size);
	tide_gcm_nonce(aead->nonce, nonce);
	sg_init_one(&aead->list, aead->bytes, sizeof(aead->bytes));
}

/**
 * tide_aead_seal() - encrypt and authenticate a short text
 * @aead: has a key
 * @nonce: no other text has it under this key
 * @ad: authenticated with it, at most TIDE_AD_MAX bytes
 * @ad_size: how many
 * @text: at most TIDE_SHORT_MAX bytes
 * @size: how many
 * @sealed: where @size bytes and the tag go
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_aead_seal(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size,
		   const void *text, size_t size, u8 *sealed)
{
	int err;

	if (ad_size > TIDE_AD_MAX || size > TIDE_SHORT_MAX)
		return -EMSGSIZE;
	tide_aead_set(aead, nonce, ad, ad_size, text, size);
	err = tide_gcm_encrypt(&aead->gcm, &aead->list, &aead->list, ad_size, size, aead->nonce);
	if (!err)
		memcpy(sealed, aead->bytes + ad_size, size + TIDE_AEAD_TAG_SIZE);
	return err;
}

/**
 * tide_aead_open() - the text of what tide_aead_seal() has made
 * @aead: has the key
 * @nonce: of the text
 * @ad: as it was authenticated
 * @ad_size: how many bytes
 * @sealed: @size bytes and the tag
 * @size: of the text, at most TIDE_SHORT_MAX
 * @text: where it goes; untouched after an error
 *
 * Context: process.
 * Return: 0, -EBADMSG when it is something else, or another negative errno.
 */
int tide_aead_open(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size,
		   const u8 *sealed, size_t size, void *text)
{
	int err;

	if (ad_size > TIDE_AD_MAX || size > TIDE_SHORT_MAX)
		return -EMSGSIZE;
	tide_aead_set(aead, nonce, ad, ad_size, sealed, size + TIDE_AEAD_TAG_SIZE);
	err = tide_gcm_decrypt(&aead->gcm, &aead->list, &aead->list, ad_size, size, aead->nonce);
	if (!err)
		memcpy(text, aead->bytes + ad_size, size);
	return err;
}
