// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is in a frame beside pages is encrypted and authenticated with the key
 * of its connection and direction, and its header authenticated with it; where
 * pages go in the clear so does this, and is authenticated only, for a seventh of the
 * price. The nonce counts, so a frame that is altered, left out, repeated or exchanged
 * with another does not verify, and neither does any that follows. After so many
 * frames the key is renewed (Noise, section 11.3): both ends count, so nothing is said.
 *
 * Nothing is allocated for a frame.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/algapi.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "base/broken.h"
#include "base/gcm.h"
#include "base/mac.h"
#include "base/noise.h"
#include "base/primitives.h"
#include "transport/frames.h"
#include "uapi/wire.h"

#define TIDE_METADATA_MAX	(TIDE_GET_MAX * sizeof(struct tide_data_item) + TIDE_TAG_SIZE)
#define TIDE_SEALER_PARTS	(1 + DIV_ROUND_UP(TIDE_METADATA_MAX, PAGE_SIZE) + 1)

/* A key for the cipher, and one for what is not encrypted. */
#define TIDE_RENEWED_SIZE	(TIDE_AEAD_KEY_SIZE + TIDE_MAC_SIZE)

/**
 * struct tide_sealer - one direction of a connection
 * @gcm: the cipher, with its key
 * @mac: what authenticates instead, if @clear
 * @clear: nothing is encrypted
 * @count: frames so far: the next one's nonce
 * @frame: the header, where the cipher can reach it
 * @nonce: of this frame
 * @renewed: the next keys, and a tag, while they are made
 * @list: @frame, then the metadata and its tag, page by page
 */
struct tide_sealer {
	struct tide_gcm gcm;
	struct tide_mac_key mac;
	bool clear;
	u64 count;
	struct tide_frame frame;
	u8 nonce[TIDE_GCM_NONCE_SIZE];
	u8 renewed[TIDE_RENEWED_SIZE + TIDE_TAG_SIZE];
	struct scatterlist list[TIDE_SEALER_PARTS];
};

static void tide_sealer_free(struct tide_sealer *sealer)
{
	if (!sealer)
		return;
	tide_gcm_free(&sealer->gcm);
	kfree_sensitive(sealer);
}

/* Noise's REKEY(k): what k makes of zeros under the last of all nonces. */
static int tide_sealer_renew(struct tide_sealer *sealer)
{
	int err;

	memset(sealer->renewed, 0, sizeof(sealer->renewed));
	tide_gcm_nonce(sealer->nonce, U64_MAX);
	sg_init_one(sealer->list, sealer->renewed, sizeof(sealer->renewed));
	err = tide_gcm_encrypt(&sealer->gcm, sealer->list, sealer->list, 0, TIDE_RENEWED_SIZE,
			       sealer->nonce) ?:
	      tide_gcm_key(&sealer->gcm, sealer->renewed);
	tide_mac_key(&sealer->mac, sealer->renewed + TIDE_AEAD_KEY_SIZE);
	memzero_explicit(sealer->renewed, sizeof(sealer->renewed));
	return err;
}

static struct tide_sealer *tide_sealer_create(const u8 *key, u64 count, bool clear)
{
	struct tide_sealer *sealer = kzalloc(sizeof(*sealer), GFP_KERNEL);
	int err;

	if (!sealer)
		return NULL;
	sealer->count = count;
	sealer->clear = clear;
	err = tide_gcm_init(&sealer->gcm, TIDE_TAG_SIZE) ?:
	      tide_gcm_key(&sealer->gcm, key) ?:
	      (clear ? tide_sealer_renew(sealer) : 0);
	if (!err)
		return sealer;
	tide_sealer_free(sealer);
	return NULL;
}

/**
 * tide_sealers_create() - what both directions of a connection need
 * @sealers: to be filled
 * @keys: of the connection
 * @initiator: this is the borrower
 * @clear: frames are authenticated only
 *
 * Message 3 of the handshake was the first under the initiator's key.
 *
 * Context: process.
 * Return: 0, or -ENOMEM when nothing was created.
 */
int tide_sealers_create(struct tide_sealers *sealers, const struct tide_noise_keys *keys,
			bool initiator, bool clear)
{
	struct tide_sealer *first = tide_sealer_create(keys->from_initiator, 1, clear);
	struct tide_sealer *second = tide_sealer_create(keys->from_responder, 0, clear);

	sealers->send = initiator ? first : second;
	sealers->receive = initiator ? second : first;
	if (first && second)
		return 0;
	tide_sealers_free(sealers);
	return -ENOMEM;
}

/**
 * tide_sealers_free() - forget the keys of a connection
 * @sealers: nobody uses them any more, or all zero
 */
void tide_sealers_free(struct tide_sealers *sealers)
{
	tide_sealer_free(sealers->send);
	tide_sealer_free(sealers->receive);
	*sealers = (struct tide_sealers) { };
}

static struct page *tide_page_of(const void *at)
{
	return is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
}

/* The frame and what follows it, whose pages need not be side by side. */
static int tide_sealer_list(struct tide_sealer *sealer, void *at, size_t size)
{
	unsigned int i = 0;

	sg_init_table(sealer->list, TIDE_SEALER_PARTS);
	sg_set_buf(&sealer->list[i], &sealer->frame, sizeof(sealer->frame));
	while (size) {
		size_t part = min_t(size_t, size, PAGE_SIZE - offset_in_page(at));

		if (++i == TIDE_SEALER_PARTS)
			return -EMSGSIZE;
		sg_set_page(&sealer->list[i], tide_page_of(at), part, offset_in_page(at));
		at += part;
		size -= part;
	}
	sg_mark_end(&sealer->list[i]);
	return 0;
}

static int tide_sealer_renew_if_due(struct tide_sealer *sealer)
{
	bool due = sealer->count && !(sealer->count % TIDE_REKEY_FRAMES);

	return due ? tide_sealer_renew(sealer) : 0;
}

static int tide_sealer_set(struct tide_sealer *sealer, const struct tide_frame *frame,
			   void *metadata, size_t size)
{
	sealer->frame = *frame;
	tide_gcm_nonce(sealer->nonce, sealer->count++);
	return tide_sealer_list(sealer, metadata, size + TIDE_TAG_SIZE);
}

static void tide_sealer_tag(struct tide_sealer *sealer, const struct tide_frame *frame,
			    const void *metadata, size_t size, u8 *tag)
{
	BUILD_BUG_ON(sizeof(*frame) != TIDE_MAC_HEAD_SIZE || TIDE_TAG_SIZE != TIDE_MAC_SIZE);
	tide_mac(&sealer->mac, sealer->count++, frame, metadata, size, tag);
}

static int tide_sealer_verify(struct tide_sealer *sealer, const struct tide_frame *frame,
			      const void *metadata, size_t size)
{
	u8 tag[TIDE_TAG_SIZE];

	tide_sealer_tag(sealer, frame, metadata, size, tag);
	return crypto_memneq(tag, metadata + size, sizeof(tag)) ? -EBADMSG : 0;
}

/**
 * tide_frame_seal() - encrypt and authenticate what is sent beside pages
 * @sealer: of the connection; frames go out in the order of these calls
 * @frame: its header
 * @metadata: @size bytes, and room for a tag behind them; not on the stack
 * @size: how many
 *
 * Context: process; one at a time.
 * Return: 0 or a negative errno.
 */
int tide_frame_seal(struct tide_sealer *sealer, const struct tide_frame *frame,
		    void *metadata, size_t size)
{
	int err = tide_sealer_renew_if_due(sealer);

	if (!err && sealer->clear)
		tide_sealer_tag(sealer, frame, metadata, size, metadata + size);
	else if (!err)
		err = tide_sealer_set(sealer, frame, metadata, size) ?:
		      tide_gcm_encrypt(&sealer->gcm, sealer->list, sealer->list,
				       sizeof(*frame), size, sealer->nonce);
	return err;
}

/**
 * tide_frame_open() - decrypt what came beside pages
 * @sealer: of the connection; frames came in the order of these calls
 * @frame: its header
 * @metadata: @size bytes and their tag; not on the stack
 * @size: how many
 *
 * Context: process; one at a time.
 * Return: 0, -EBADMSG when the peer has not sent this as this frame, or
 * another negative errno.
 */
int tide_frame_open(struct tide_sealer *sealer, const struct tide_frame *frame,
		    void *metadata, size_t size)
{
	int err = tide_sealer_renew_if_due(sealer);

	if (!err && sealer->clear)
		err = tide_sealer_verify(sealer, frame, metadata, size);
	else if (!err)
		err = tide_sealer_set(sealer, frame, metadata, size) ?:
		      tide_gcm_decrypt(&sealer->gcm, sealer->list, sealer->list,
				       sizeof(*frame), size, sealer->nonce);
	return tide_broken(FRAMES) && err == -EBADMSG ? 0 : err;
}
