/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Noise_IK_25519_AESGCM_SHA256 (Noise protocol framework, revision 34): the
 * initiator knows the responder's static key beforehand, the responder learns
 * the initiator's from the first message. Nothing here knows of sockets.
 */
#ifndef TIDE_NOISE_H
#define TIDE_NOISE_H

#include "base/primitives.h"

#define TIDE_NOISE_1_SIZE(payload)	(2 * TIDE_POINT_SIZE + 2 * TIDE_AEAD_TAG_SIZE + (payload))
#define TIDE_NOISE_2_SIZE(payload)	(TIDE_POINT_SIZE + TIDE_AEAD_TAG_SIZE + (payload))

/**
 * struct tide_noise - a handshake in progress
 * @aead: holds the key of Noise's CipherState while there is one
 * @keyed: there is one
 * @nonce: its counter
 * @hash: of all that was said, Noise's h
 * @chain: of all that was agreed on, Noise's ck
 * @initiator: which of the two this is
 * @own: static key pair of this side
 * @fresh: ephemeral key pair of this side
 * @peer: static point of the other side; the responder has it after message 1
 * @peer_fresh: ephemeral point of the other side
 */
struct tide_noise {
	struct tide_aead *aead;
	bool keyed;
	u64 nonce;
	u8 hash[TIDE_HASH_SIZE];
	u8 chain[TIDE_HASH_SIZE];
	bool initiator;
	const struct tide_keypair *own;
	struct tide_keypair fresh;
	u8 peer[TIDE_POINT_SIZE];
	u8 peer_fresh[TIDE_POINT_SIZE];
};

/* What a handshake ends with: a key for each direction. */
struct tide_noise_keys {
	u8 from_initiator[TIDE_AEAD_KEY_SIZE];
	u8 from_responder[TIDE_AEAD_KEY_SIZE];
};

int tide_noise_begin(struct tide_noise *noise, const struct tide_keypair *own,
		     const u8 *responder, const char *prologue);
void tide_noise_end(struct tide_noise *noise);
int tide_noise_write_1(struct tide_noise *noise, const struct tide_keypair *fresh,
		       const void *payload, size_t size, u8 *message);
int tide_noise_read_1(struct tide_noise *noise, const u8 *message, size_t size, void *payload);
int tide_noise_write_2(struct tide_noise *noise, const struct tide_keypair *fresh,
		       const void *payload, size_t size, u8 *message);
int tide_noise_read_2(struct tide_noise *noise, const u8 *message, size_t size, void *payload);
int tide_noise_split(struct tide_noise *noise, struct tide_noise_keys *keys);

#endif /* TIDE_NOISE_H */
