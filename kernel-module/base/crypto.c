// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages are encrypted and authenticated by the borrower (invariant 8), with
 * AES-256 in GCM and a key that is drawn for each epoch (epochs.c) and leaves the
 * kernel's crypto API in no direction: the lender holds ciphertext and tag.
 *
 * The nonce is the version of the put, which no other put under this key has,
 * and the salt of its batch. A guest whose memory goes back in time (timeline.c)
 * gives versions anew: on a new connection that is another key, to which the
 * lender has contributed, and on the old one, which cannot live on but may take
 * some bytes yet, it is another salt, which comes from the processor.
 *
 * File, index and version are authenticated with the page, so a lender that
 * alters a page, exchanges two, or sends back an older one is found out.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "base/broken.h"
#include "base/compat.h"
#include "base/crypto.h"
#include "base/gcm.h"
#include "base/primitives.h"
#include "uapi/wire.h"

#define TIDE_CIPHER_SALT_SIZE	4
#define TIDE_CIPHER_TAG_SIZE	(TIDE_TAG_SIZE - TIDE_CIPHER_SALT_SIZE)

/**
 * struct tide_cipher_thread - what one thread needs to encrypt or decrypt
 * @gcm: with an epoch's key
 * @id: authenticated with the page
 * @nonce: for this page: its version, and the salt of its batch
 * @tag: of the page; the wire's has the salt behind it
 * @from: id, page and, when decrypting, tag
 * @to: id, page and tag
 */
struct tide_cipher_thread {
	struct tide_gcm gcm;
	struct tide_page_id id;
	struct {
		__le64 version;
		u8 salt[TIDE_CIPHER_SALT_SIZE];
	} __packed nonce;
	u8 tag[TIDE_CIPHER_TAG_SIZE];
	struct scatterlist from[3], to[3];
};

/**
 * struct tide_cipher - a key, and the threads that work with it at the same time
 * @threads: how many
 * @thread: each of them
 */
struct tide_cipher {
	unsigned int threads;
	struct tide_cipher_thread thread[];
};

int tide_crypto_init(void)
{
	struct tide_gcm gcm = { };
	int err;

	/* The processor's own AES is a module that nobody may have needed yet. */
	request_module("crypto-aes");
	err = tide_gcm_init(&gcm, TIDE_CIPHER_TAG_SIZE);
	if (err)
		pr_err("this kernel has no gcm(aes)\n");
	else
		pr_info("pages are encrypted by %s\n", tide_gcm_driver(&gcm));
	tide_gcm_free(&gcm);
	return err;
}

/* ------------------------------------------------------------------ */
/* keys								       */
/* ------------------------------------------------------------------ */

struct tide_seed {
	u8 random[TIDE_AEAD_KEY_SIZE];
	unsigned long hardware[4];
};

/* The kernel's generator is memory, and goes back in time with it; the processor's is not. */
static int tide_seed_draw(struct tide_seed *seed)
{
	int i, err = get_random_bytes_wait(seed->random, sizeof(seed->random));

	for (i = 0; i < ARRAY_SIZE(seed->hardware); i++)
		seed->hardware[i] = tide_hardware_random();
	return err;
}

/* HMAC-SHA256(contribution, seed): HKDF's extraction, with the contribution as salt. */
static int tide_key_draw(u8 *key, const u8 *contribution)
{
	struct tide_seed seed;
	int err = tide_seed_draw(&seed) ?: tide_hmac(key, contribution, &seed, sizeof(seed));

	memzero_explicit(&seed, sizeof(seed));
	return err;
}

static int tide_cipher_key(struct tide_cipher *c, const u8 *key)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < c->threads && !err; i++)
		err = tide_gcm_key(&c->thread[i].gcm, key);
	return err;
}

/**
 * tide_cipher_renew() - encrypt under a fresh key from now on
 * @put: of the thread that encrypts; idle now
 * @get: decrypts what the other has encrypted, in any thread; likewise
 * @contribution: TIDE_HASH_SIZE bytes, the hash of the handshake: the lender never
 *	says the same again, so neither comes the same key, even if all of this
 *	guest's memory, its random generator included, is as it was once before
 *
 * Context: process.
 * Return: 0 or a negative errno.
 */
int tide_cipher_renew(struct tide_cipher *put, struct tide_cipher *get, const u8 *contribution)
{
	u8 key[TIDE_AEAD_KEY_SIZE];
	int err = tide_key_draw(key, contribution);

	if (tide_broken(RENEW))
		memset(key, 0, sizeof(key));
	if (!err)
		err = tide_cipher_key(put, key) ?: tide_cipher_key(get, key);
	memzero_explicit(key, sizeof(key));
	return err;
}

/**
 * tide_cipher_salt() - draw the salt of a batch
 * @c: of this thread
 *
 * Drawn when the batch is complete: whoever goes back to between this and the
 * encryption encrypts the very same pages.
 */
void tide_cipher_salt(struct tide_cipher *c)
{
	u32 salt = get_random_u32() ^ tide_hardware_random();

	static_assert(sizeof(salt) == TIDE_CIPHER_SALT_SIZE);
	if (tide_broken(SALT))
		salt = 0;
	memcpy(c->thread[0].nonce.salt, &salt, sizeof(salt));
}

/* ------------------------------------------------------------------ */
/* pages							       */
/* ------------------------------------------------------------------ */

static void tide_cipher_list(struct tide_cipher_thread *t, struct scatterlist *list)
{
	sg_init_table(list, 3);
	sg_set_buf(&list[0], &t->id, sizeof(t->id));
	sg_set_buf(&list[2], t->tag, sizeof(t->tag));
}

static int tide_cipher_thread_init(struct tide_cipher_thread *t)
{
	tide_cipher_list(t, t->from);
	tide_cipher_list(t, t->to);
	return tide_gcm_init(&t->gcm, TIDE_CIPHER_TAG_SIZE);
}

/**
 * tide_cipher_create() - allocate what threads need that share a key
 * @threads: how many
 *
 * Return: for tide_encrypt() and tide_decrypt(), or NULL.
 */
struct tide_cipher *tide_cipher_create(unsigned int threads)
{
	struct tide_cipher *c = kzalloc(struct_size(c, thread, threads), GFP_KERNEL);
	unsigned int i;
	int err = 0;

	if (!c)
		return NULL;
	c->threads = threads;
	for (i = 0; i < threads && !err; i++)
		err = tide_cipher_thread_init(&c->thread[i]);
	if (!err)
		return c;
	tide_cipher_free(c);
	return NULL;
}

void tide_cipher_free(struct tide_cipher *c)
{
	unsigned int i;

	if (!c)
		return;
	for (i = 0; i < c->threads; i++)
		tide_gcm_free(&c->thread[i].gcm);
	kfree_sensitive(c);
}

static void tide_cipher_page(struct tide_cipher_thread *t, const struct tide_page_id *id)
{
	t->id = *id;
	t->nonce.version = id->version;
}

/**
 * tide_encrypt() - encrypt a page
 * @c: of this thread alone
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
	struct tide_cipher_thread *t = &c->thread[0];
	int err;

	tide_cipher_page(t, id);
	sg_set_page(&t->from[1], from, PAGE_SIZE, 0);
	sg_set_page(&t->to[1], to, PAGE_SIZE, 0);
	err = tide_gcm_encrypt(&t->gcm, t->from, t->to, sizeof(t->id), PAGE_SIZE,
			       (u8 *)&t->nonce);
	memcpy(tag, t->tag, TIDE_CIPHER_TAG_SIZE);
	memcpy(tag + TIDE_CIPHER_TAG_SIZE, t->nonce.salt, TIDE_CIPHER_SALT_SIZE);
	return err;
}

/**
 * tide_decrypt() - decrypt a page in place
 * @c: with the page's key
 * @thread: which of those this is that the cipher was made for
 * @id: which page this must be
 * @page: the ciphertext; unspecified after an error
 * @tag: its tag
 *
 * Context: process.
 * Return: 0, -EBADMSG when it is not what was encrypted as this page, or
 * another negative errno.
 */
int tide_decrypt(struct tide_cipher *c, unsigned int thread, const struct tide_page_id *id,
		 struct page *page, const u8 *tag)
{
	struct tide_cipher_thread *t = &c->thread[thread];
	int err;

	tide_cipher_page(t, id);
	memcpy(t->tag, tag, TIDE_CIPHER_TAG_SIZE);
	memcpy(t->nonce.salt, tag + TIDE_CIPHER_TAG_SIZE, TIDE_CIPHER_SALT_SIZE);
	sg_set_page(&t->to[1], page, PAGE_SIZE, 0);
	err = tide_gcm_decrypt(&t->gcm, t->to, t->to, sizeof(t->id), PAGE_SIZE,
			       (u8 *)&t->nonce);
	return tide_broken(TAG) && err == -EBADMSG ? 0 : err;
}

MODULE_SOFTDEP("pre: gcm");
