// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages are encrypted and authenticated by the borrower (invariant 8), with
 * AES-256 in GCM and a key that is drawn when the module is loaded and leaves
 * the kernel's crypto API in no direction: the lender holds ciphertext and tag.
 *
 * The nonce is the version of the put, which no other put under this key has.
 * File, index and version are authenticated with the page, so a lender that
 * alters a page, exchanges two, or sends back an older one is found out.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/aead.h>
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "tidepool.h"

#define TIDE_CIPHER		"gcm(aes)"
#define TIDE_CIPHER_KEY_SIZE	32	/* AES-256 */
#define TIDE_CIPHER_NONCE_SIZE	12

/*
 * An accelerator behind a queue, or one that allocates for each request, has no
 * place under a page fault. Algorithms that merely may be asynchronous are
 * taken and waited for: with most kernels the processor's own AES is such.
 */
#define TIDE_CIPHER_NOT		(CRYPTO_ALG_KERN_DRIVER_ONLY | CRYPTO_ALG_ALLOCATES_MEMORY)

static struct crypto_aead *tide_aead;

/**
 * struct tide_cipher - what one thread needs to encrypt or decrypt
 * @request: to the crypto API
 * @wait: for its end
 * @id: authenticated with the page
 * @nonce: for this page
 * @tag: of the page
 * @from: id, page and, when decrypting, tag
 * @to: id, page and tag
 */
struct tide_cipher {
	struct aead_request *request;
	struct crypto_wait wait;
	struct tide_page_id id;
	u8 nonce[TIDE_CIPHER_NONCE_SIZE];
	u8 tag[TIDE_TAG_SIZE];
	struct scatterlist from[3], to[3];
};

static int tide_draw_key(struct crypto_aead *aead)
{
	u8 key[TIDE_CIPHER_KEY_SIZE];
	int err = get_random_bytes_wait(key, sizeof(key));

	if (!err)
		err = crypto_aead_setkey(aead, key, sizeof(key));
	memzero_explicit(key, sizeof(key));
	return err;
}

int tide_crypto_init(void)
{
	struct crypto_aead *aead;
	int err;

	/* The processor's own AES is a module that nobody may have needed yet. */
	request_module("crypto-aes");
	aead = crypto_alloc_aead(TIDE_CIPHER, 0, TIDE_CIPHER_NOT);
	if (IS_ERR(aead)) {
		pr_err("this kernel has no " TIDE_CIPHER "\n");
		return PTR_ERR(aead);
	}
	err = crypto_aead_setauthsize(aead, TIDE_TAG_SIZE) ?: tide_draw_key(aead);
	if (err) {
		pr_err("no key for " TIDE_CIPHER ": error %d\n", err);
		crypto_free_aead(aead);
		return err;
	}
	tide_aead = aead;
	pr_info("pages are encrypted by %s\n",
		crypto_tfm_alg_driver_name(crypto_aead_tfm(aead)));
	return 0;
}

/* Zeroes the key, too. */
void tide_crypto_exit(void)
{
	crypto_free_aead(tide_aead);
}

static void tide_cipher_list(struct tide_cipher *c, struct scatterlist *list)
{
	sg_init_table(list, 3);
	sg_set_buf(&list[0], &c->id, sizeof(c->id));
	sg_set_buf(&list[2], c->tag, sizeof(c->tag));
}

/**
 * tide_cipher_create() - allocate what a thread needs
 *
 * Return: for tide_encrypt() and tide_decrypt(), or NULL.
 */
struct tide_cipher *tide_cipher_create(void)
{
	struct tide_cipher *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return NULL;
	c->request = aead_request_alloc(tide_aead, GFP_KERNEL);
	if (!c->request) {
		kfree(c);
		return NULL;
	}
	crypto_init_wait(&c->wait);
	/* Not MAY_SLEEP: what little is allocated must not enter reclaim. */
	aead_request_set_callback(c->request, CRYPTO_TFM_REQ_MAY_BACKLOG,
				  crypto_req_done, &c->wait);
	aead_request_set_ad(c->request, sizeof(c->id));
	tide_cipher_list(c, c->from);
	tide_cipher_list(c, c->to);
	return c;
}

void tide_cipher_free(struct tide_cipher *c)
{
	if (!c)
		return;
	aead_request_free(c->request);
	kfree_sensitive(c);
}

static void tide_cipher_page(struct tide_cipher *c, const struct tide_page_id *id)
{
	c->id = *id;
	memset(c->nonce, 0, sizeof(c->nonce));
	memcpy(c->nonce, &id->version, sizeof(id->version));
}

/**
 * tide_encrypt() - encrypt a page
 * @c: of this thread
 * @id: which page this is; no other page has this version
 * @from: the page
 * @to: where the ciphertext goes
 * @tag: where the tag goes
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_encrypt(struct tide_cipher *c, const struct tide_page_id *id,
		 struct page *from, struct page *to, u8 *tag)
{
	int err;

	tide_cipher_page(c, id);
	sg_set_page(&c->from[1], from, PAGE_SIZE, 0);
	sg_set_page(&c->to[1], to, PAGE_SIZE, 0);
	aead_request_set_crypt(c->request, c->from, c->to, PAGE_SIZE, c->nonce);
	err = crypto_wait_req(crypto_aead_encrypt(c->request), &c->wait);
	memcpy(tag, c->tag, TIDE_TAG_SIZE);
	return err;
}

/**
 * tide_decrypt() - decrypt a page in place
 * @c: of this thread
 * @id: which page this must be
 * @page: the ciphertext; unspecified after an error
 * @tag: its tag
 *
 * Context: process.
 * Return: 0, -EBADMSG when it is not what was encrypted as this page, or
 * another negative errno.
 */
int tide_decrypt(struct tide_cipher *c, const struct tide_page_id *id,
		 struct page *page, const u8 *tag)
{
	int err;

	tide_cipher_page(c, id);
	memcpy(c->tag, tag, TIDE_TAG_SIZE);
	sg_set_page(&c->to[1], page, PAGE_SIZE, 0);
	aead_request_set_crypt(c->request, c->to, c->to,
			       PAGE_SIZE + TIDE_TAG_SIZE, c->nonce);
	err = crypto_wait_req(crypto_aead_decrypt(c->request), &c->wait);
	return tide_broken(TAG) && err == -EBADMSG ? 0 : err;
}

MODULE_SOFTDEP("pre: gcm");
