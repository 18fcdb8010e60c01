// SPDX-License-Identifier: GPL-2.0-only
/*
 * The handshake's arithmetic, by the book: names in quotes are those of the
 * Noise specification, sections 5.1 to 5.3 and 7.5 (IK).
 *
 *	  <- s
 *	  ...
 *	  -> e, es, s, ss
 *	  <- e, ee, se
 */
#include <linux/err.h>
#include <linux/string.h>

#include "base/broken.h"
#include "base/noise.h"
#include "base/primitives.h"

#define TIDE_NOISE_NAME		"Noise_IK_25519_AESGCM_SHA256"

/* "MixHash" */
static int tide_mix_hash(struct tide_noise *noise, const void *data, size_t size)
{
	return tide_hash(noise->hash, noise->hash, sizeof(noise->hash), data, size);
}

/* "HKDF" with two outputs; @chain may be @first. */
static int tide_derive(const u8 *chain, const void *input, size_t size, u8 *first, u8 *second)
{
	u8 key[TIDE_HASH_SIZE], more[TIDE_HASH_SIZE + 1];
	int err = tide_hmac(key, chain, input, size);

	if (!err)
		err = tide_hmac(first, key, "\x01", 1);
	memcpy(more, first, TIDE_HASH_SIZE);
	more[TIDE_HASH_SIZE] = tide_broken(NOISE) ? 3 : 2;
	if (!err)
		err = tide_hmac(second, key, more, sizeof(more));
	memzero_explicit(key, sizeof(key));
	memzero_explicit(more, sizeof(more));
	return err;
}

/* "MixKey(DH(...))" */
static int tide_mix_agreed(struct tide_noise *noise, const struct tide_keypair *pair,
			   const u8 *point)
{
	u8 shared[TIDE_POINT_SIZE], key[TIDE_AEAD_KEY_SIZE];
	int err;

	err = tide_agree(shared, pair->secret, point) ?:
	      tide_derive(noise->chain, shared, sizeof(shared), noise->chain, key) ?:
	      tide_aead_key(noise->aead, key);
	noise->keyed = !err;
	noise->nonce = 0;
	memzero_explicit(shared, sizeof(shared));
	memzero_explicit(key, sizeof(key));
	return err;
}

/* "EncryptAndHash"; both patterns of this protocol have a key by then. */
static int tide_seal_and_hash(struct tide_noise *noise, const void *text, size_t size, u8 *sealed)
{
	if (!noise->keyed)
		return -ENOKEY;
	return tide_aead_seal(noise->aead, noise->nonce++, noise->hash, sizeof(noise->hash),
			      text, size, sealed) ?:
	       tide_mix_hash(noise, sealed, size + TIDE_AEAD_TAG_SIZE);
}

/* "DecryptAndHash" */
static int tide_open_and_hash(struct tide_noise *noise, const u8 *sealed, size_t size, void *text)
{
	if (!noise->keyed)
		return -ENOKEY;
	return tide_aead_open(noise->aead, noise->nonce++, noise->hash, sizeof(noise->hash),
			      sealed, size, text) ?:
	       tide_mix_hash(noise, sealed, size + TIDE_AEAD_TAG_SIZE);
}

/**
 * tide_noise_begin() - "Initialize"
 * @noise: to be filled
 * @own: static key pair of this side, which outlives the handshake
 * @responder: static point of the other side, or NULL: this is the responder
 * @prologue: what both sides must agree on
 *
 * Context: process.
 * Return: 0 or a negative errno; tide_noise_end() is for both.
 */
int tide_noise_begin(struct tide_noise *noise, const struct tide_keypair *own,
		     const u8 *responder, const char *prologue)
{
	struct tide_aead *aead;

	*noise = (struct tide_noise) { .own = own, .initiator = responder };
	memcpy(noise->hash, TIDE_NOISE_NAME, strlen(TIDE_NOISE_NAME));	/* and zeros */
	memcpy(noise->chain, noise->hash, sizeof(noise->chain));
	if (responder)
		memcpy(noise->peer, responder, sizeof(noise->peer));
	aead = tide_aead_create();
	if (IS_ERR(aead))
		return PTR_ERR(aead);
	noise->aead = aead;
	return tide_mix_hash(noise, prologue, strlen(prologue)) ?:
	       tide_mix_hash(noise, responder ?: own->point, TIDE_POINT_SIZE);
}

/**
 * tide_noise_end() - forget a handshake, its secrets first
 * @noise: begun, however far it came, or all zero
 */
void tide_noise_end(struct tide_noise *noise)
{
	tide_aead_free(noise->aead);
	memzero_explicit(noise, sizeof(*noise));
}

/* "e" */
static int tide_write_fresh(struct tide_noise *noise, const struct tide_keypair *fresh, u8 *message)
{
	noise->fresh = *fresh;
	memcpy(message, fresh->point, TIDE_POINT_SIZE);
	return tide_mix_hash(noise, message, TIDE_POINT_SIZE);
}

static int tide_read_fresh(struct tide_noise *noise, const u8 *message)
{
	memcpy(noise->peer_fresh, message, TIDE_POINT_SIZE);
	return tide_mix_hash(noise, message, TIDE_POINT_SIZE);
}

/* "-> e, es, s, ss" */

/**
 * tide_noise_write_1() - the initiator's first message
 * @noise: just begun
 * @fresh: key pair that was drawn for this handshake
 * @payload: what it carries; a third party can repeat it, but not read it
 * @size: of the payload
 * @message: TIDE_NOISE_1_SIZE(@size) bytes
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_noise_write_1(struct tide_noise *noise, const struct tide_keypair *fresh,
		       const void *payload, size_t size, u8 *message)
{
	u8 *sealed_static = message + TIDE_POINT_SIZE;
	u8 *sealed_payload = sealed_static + TIDE_POINT_SIZE + TIDE_AEAD_TAG_SIZE;

	return tide_write_fresh(noise, fresh, message) ?:
	       tide_mix_agreed(noise, &noise->fresh, noise->peer) ?:
	       tide_seal_and_hash(noise, noise->own->point, TIDE_POINT_SIZE, sealed_static) ?:
	       tide_mix_agreed(noise, noise->own, noise->peer) ?:
	       tide_seal_and_hash(noise, payload, size, sealed_payload);
}

/**
 * tide_noise_read_1() - what the responder makes of that
 * @noise: just begun
 * @message: TIDE_NOISE_1_SIZE(@size) bytes
 * @size: of the payload
 * @payload: what it carried; @noise->peer is who wrote it, at some time
 *
 * Context: process.
 * Return: 0, -EBADMSG when it is no such message or meant for another static
 * key, or another negative errno.
 */
int tide_noise_read_1(struct tide_noise *noise, const u8 *message, size_t size, void *payload)
{
	const u8 *sealed_static = message + TIDE_POINT_SIZE;
	const u8 *sealed_payload = sealed_static + TIDE_POINT_SIZE + TIDE_AEAD_TAG_SIZE;

	return tide_read_fresh(noise, message) ?:
	       tide_mix_agreed(noise, noise->own, noise->peer_fresh) ?:
	       tide_open_and_hash(noise, sealed_static, TIDE_POINT_SIZE, noise->peer) ?:
	       tide_mix_agreed(noise, noise->own, noise->peer) ?:
	       tide_open_and_hash(noise, sealed_payload, size, payload);
}

/* "<- e, ee, se" */

/**
 * tide_noise_write_2() - the responder's answer
 * @noise: has read message 1
 * @fresh: key pair that was drawn for this handshake
 * @payload: what it carries
 * @size: of the payload
 * @message: TIDE_NOISE_2_SIZE(@size) bytes
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_noise_write_2(struct tide_noise *noise, const struct tide_keypair *fresh,
		       const void *payload, size_t size, u8 *message)
{
	return tide_write_fresh(noise, fresh, message) ?:
	       tide_mix_agreed(noise, &noise->fresh, noise->peer_fresh) ?:
	       tide_mix_agreed(noise, &noise->fresh, noise->peer) ?:
	       tide_seal_and_hash(noise, payload, size, message + TIDE_POINT_SIZE);
}

/**
 * tide_noise_read_2() - what the initiator makes of that
 * @noise: has written message 1
 * @message: TIDE_NOISE_2_SIZE(@size) bytes
 * @size: of the payload
 * @payload: what it carried
 *
 * Context: process.
 * Return: 0, -EBADMSG when whoever wrote it has not the responder's static
 * key, or another negative errno.
 */
int tide_noise_read_2(struct tide_noise *noise, const u8 *message, size_t size, void *payload)
{
	return tide_read_fresh(noise, message) ?:
	       tide_mix_agreed(noise, &noise->fresh, noise->peer_fresh) ?:
	       tide_mix_agreed(noise, noise->own, noise->peer_fresh) ?:
	       tide_open_and_hash(noise, message + TIDE_POINT_SIZE, size, payload);
}

/**
 * tide_noise_split() - "Split": the keys that the session goes on with
 * @noise: through both messages
 * @keys: to be filled
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_noise_split(struct tide_noise *noise, struct tide_noise_keys *keys)
{
	return tide_derive(noise->chain, "", 0, keys->from_initiator, keys->from_responder);
}
