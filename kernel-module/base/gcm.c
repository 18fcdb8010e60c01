// SPDX-License-Identifier: GPL-2.0-only
/*
 * AES-256 in GCM: one cipher, its request and the wait for its end. The handshake
 * (primitives.c), frames (transport/frames.c) and pages (crypto.c) each have their
 * own. Nothing is allocated for a text.
 */
#include <crypto/aead.h>
#include <linux/sched/mm.h>
#include <linux/string.h>

#include "base/compat.h"
#include "base/gcm.h"
#include "base/primitives.h"

/*
 * An accelerator behind a queue, or one that allocates for each request, has no
 * place under a page fault. Algorithms that merely may be asynchronous are
 * taken and waited for: with most kernels the processor's own AES is such.
 */
#define TIDE_GCM_NOT	(CRYPTO_ALG_KERN_DRIVER_ONLY | CRYPTO_ALG_ALLOCATES_MEMORY)

/**
 * tide_gcm_init() - allocate what is needed to use a key
 * @gcm: all zero; has no key yet
 * @tag_size: of the tag that follows each text, in bytes
 *
 * Context: process.
 * Return: 0 or a negative errno; tide_gcm_free() is to follow in either case.
 */
int tide_gcm_init(struct tide_gcm *gcm, unsigned int tag_size)
{
	struct crypto_aead *tfm = crypto_alloc_aead("gcm(aes)", 0, TIDE_GCM_NOT);

	if (IS_ERR(tfm))
		return PTR_ERR(tfm);
	gcm->tfm = tfm;
	gcm->request = aead_request_alloc(tfm, GFP_KERNEL);
	if (!gcm->request)
		return -ENOMEM;
	crypto_init_wait(&gcm->wait);
	/* Not MAY_SLEEP: what little is allocated must not enter reclaim. */
	aead_request_set_callback(gcm->request, CRYPTO_TFM_REQ_MAY_BACKLOG,
				  crypto_req_done, &gcm->wait);
	return crypto_aead_setauthsize(tfm, tag_size);
}

/**
 * tide_gcm_free() - forget the key
 * @gcm: nobody uses it any more, or all zero
 */
void tide_gcm_free(struct tide_gcm *gcm)
{
	aead_request_free(gcm->request);
	crypto_free_aead(gcm->tfm);	/* zeroes the key, too */
}

/**
 * tide_gcm_driver() - which of the kernel's implementations it is
 * @gcm: has been initialized
 */
const char *tide_gcm_driver(const struct tide_gcm *gcm)
{
	return crypto_tfm_alg_driver_name(crypto_aead_tfm(gcm->tfm));
}

/**
 * tide_gcm_key() - use a key from now on
 * @gcm: idle
 * @key: TIDE_AEAD_KEY_SIZE bytes
 *
 * Some ciphers allocate for a key, and who renews one may not wait for a disk.
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_gcm_key(struct tide_gcm *gcm, const u8 *key)
{
	unsigned int flags = memalloc_noio_save();
	int err = crypto_aead_setkey(gcm->tfm, key, TIDE_AEAD_KEY_SIZE);

	memalloc_noio_restore(flags);
	return err;
}

/**
 * tide_gcm_nonce() - Noise's nonce: four bytes of zero, then a number, big-endian
 * @nonce: TIDE_GCM_NONCE_SIZE bytes
 * @number: no other text has it under this key
 */
void tide_gcm_nonce(u8 *nonce, u64 number)
{
	memset(nonce, 0, TIDE_GCM_NONCE_SIZE - sizeof(number));
	put_unaligned_be64(number, nonce + TIDE_GCM_NONCE_SIZE - sizeof(number));
}

/**
 * tide_gcm_encrypt() - encrypt and authenticate a text
 * @gcm: has a key
 * @from: what is authenticated only, then the text
 * @to: room for the same and the tag; may be @from
 * @ad_size: bytes that are authenticated only
 * @size: bytes of the text
 * @nonce: TIDE_GCM_NONCE_SIZE bytes, not on the stack, as all of these
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_gcm_encrypt(struct tide_gcm *gcm, struct scatterlist *from, struct scatterlist *to,
		     unsigned int ad_size, unsigned int size, u8 *nonce)
{
	aead_request_set_ad(gcm->request, ad_size);
	aead_request_set_crypt(gcm->request, from, to, size, nonce);
	return crypto_wait_req(crypto_aead_encrypt(gcm->request), &gcm->wait);
}

/**
 * tide_gcm_decrypt() - the text of what tide_gcm_encrypt() has made
 * @gcm: has the key
 * @from: what is authenticated only, then the text and its tag
 * @to: room for the same; may be @from
 * @ad_size: bytes that are authenticated only
 * @size: bytes of the text
 * @nonce: that of the text
 *
 * Context: process.
 * Return: 0, -EBADMSG when it is something else, or another negative errno.
 */
int tide_gcm_decrypt(struct tide_gcm *gcm, struct scatterlist *from, struct scatterlist *to,
		     unsigned int ad_size, unsigned int size, u8 *nonce)
{
	aead_request_set_ad(gcm->request, ad_size);
	aead_request_set_crypt(gcm->request, from, to, size + crypto_aead_authsize(gcm->tfm),
			       nonce);
	return crypto_wait_req(crypto_aead_decrypt(gcm->request), &gcm->wait);
}
