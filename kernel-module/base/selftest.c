// SPDX-License-Identifier: GPL-2.0-only
/*
 * With selftest=1 the module shows, before anything else of it is brought up,
 * that the handshake computes on this kernel what the specification says. The
 * vector is the one for Noise_IK_25519_AESGCM_SHA256 of cacophony, which snow
 * and others test with as well.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/mac.h"
#include "base/noise.h"
#include "base/primitives.h"
#include "base/selftest.h"

bool tide_selftest_wanted;
module_param_named(selftest, tide_selftest_wanted, bool, 0444);
MODULE_PARM_DESC(selftest, "test what the module computes when it is loaded");

#define TIDE_TEST_PROLOGUE	"John Galt"

/* Secrets of both sides, and the hash that both end with. */
static const char tide_test_initiator[] __initconst =
	"e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1";
static const char tide_test_initiator_fresh[] __initconst =
	"893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
static const char tide_test_responder[] __initconst =
	"4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893";
static const char tide_test_responder_fresh[] __initconst =
	"bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
static const char tide_test_hash[] __initconst =
	"669c8640d9e42a3cda2f232f78597ceefb01daa6e3df81181ccce6fc6b5026bf";

static const u8 tide_test_wire_1[] __initconst = {
	0xca, 0x35, 0xde, 0xf5, 0xae, 0x56, 0xce, 0xc3, 0x3d, 0xc2, 0x03, 0x67,
	0x31, 0xab, 0x14, 0x89, 0x6b, 0xc4, 0xc7, 0x5d, 0xbb, 0x07, 0xa6, 0x1f,
	0x87, 0x9f, 0x8e, 0x3a, 0xfa, 0x4c, 0x79, 0x44, 0x4e, 0x41, 0x7b, 0xc5,
	0x5c, 0x7a, 0x81, 0x66, 0xc9, 0x93, 0x35, 0x6c, 0x1b, 0xe4, 0x1e, 0xf6,
	0x78, 0x18, 0xa2, 0x92, 0x42, 0x6f, 0x30, 0x15, 0x56, 0xc7, 0xf2, 0x6b,
	0x21, 0xd2, 0x5d, 0xdb, 0x09, 0x71, 0x53, 0x89, 0x1a, 0x9a, 0x95, 0x6c,
	0xff, 0x47, 0xb8, 0x3e, 0x63, 0xad, 0x8d, 0x70, 0x1c, 0x13, 0x42, 0xc2,
	0x09, 0xcf, 0xf1, 0xca, 0x5e, 0xcd, 0x43, 0x40, 0x27, 0x62, 0xac, 0x24,
	0x9e, 0x3b, 0xd3, 0xa4, 0xc0, 0xa1, 0x45, 0xfe, 0x07, 0xcb, 0x5d, 0xae,
	0x28, 0xea, 0x13, 0xa3,
};

static const u8 tide_test_wire_2[] __initconst = {
	0x95, 0xeb, 0xc6, 0x0d, 0x2b, 0x1f, 0xa6, 0x72, 0xc1, 0xf4, 0x6a, 0x8a,
	0xa2, 0x65, 0xef, 0x51, 0xbf, 0xe3, 0x8e, 0x7c, 0xcb, 0x39, 0xec, 0x5b,
	0xe3, 0x40, 0x69, 0xf1, 0x44, 0x80, 0x88, 0x43, 0xaf, 0x2c, 0xcf, 0x99,
	0x72, 0xe2, 0x2a, 0xfc, 0x67, 0xae, 0xaf, 0xcd, 0x25, 0x16, 0x2f, 0x7f,
	0x98, 0xc3, 0x63, 0xb7, 0x76, 0x2e, 0x3e, 0x4c, 0xb7, 0xd2, 0x72, 0xe3,
	0x9f, 0x27, 0xa5,
};

static const u8 tide_test_wire_3[] __initconst = {
	0x66, 0xac, 0xfc, 0x92, 0xe3, 0x19, 0x7d, 0xe1, 0x66, 0x80, 0x9e, 0x6d,
	0x4d, 0x5d, 0x00, 0x3d, 0xcc, 0x81, 0x9a, 0x84, 0xbc, 0x35, 0x22, 0xca,
	0x53, 0xc9, 0xd9,
};

static const u8 tide_test_wire_4[] __initconst = {
	0x71, 0xf8, 0x9a, 0xa6, 0x53, 0x3a, 0x6d, 0xe7, 0x0b, 0x08, 0x26, 0x86,
	0x4d, 0xd7, 0x5f, 0x60, 0x80, 0x6e, 0xe4, 0x01, 0x70, 0xc1, 0x62, 0x90,
	0x18, 0x9e, 0xb3,
};

struct tide_test_vector {
	const char *text;
	const u8 *wire;
	size_t size;
};

static const struct tide_test_vector tide_test_message[] __initconst = {
	{ "Ludwig von Mises", tide_test_wire_1, sizeof(tide_test_wire_1) },
	{ "Murray Rothbard", tide_test_wire_2, sizeof(tide_test_wire_2) },
	{ "F. A. Hayek", tide_test_wire_3, sizeof(tide_test_wire_3) },
	{ "Carl Menger", tide_test_wire_4, sizeof(tide_test_wire_4) },
};

/* Both sides of the handshake, and one message of it. */
struct tide_test {
	struct tide_keypair own[2], fresh[2];
	struct tide_noise side[2];
	struct tide_noise_keys keys[2];
	u8 message[TIDE_NOISE_1_SIZE(32)], wanted[TIDE_HASH_SIZE];
	u8 text[32];
};

static int __init tide_test_pair(struct tide_keypair *pair, const char *secret)
{
	return hex2bin(pair->secret, secret, sizeof(pair->secret)) ?: tide_keypair_derive(pair);
}

static int __init tide_test_same(const void *a, const void *b, size_t size)
{
	return memcmp(a, b, size) ? -EBADMSG : 0;
}

/* What was written is message @i of the vector, and what was read is its text. */
static int __init tide_test_is(struct tide_test *t, unsigned int i)
{
	const struct tide_test_vector *vector = &tide_test_message[i];

	return tide_test_same(t->message, vector->wire, vector->size) ?:
	       tide_test_same(t->text, vector->text, strlen(vector->text));
}

static int __init tide_test_keys(struct tide_test *t)
{
	return tide_test_pair(&t->own[0], tide_test_initiator) ?:
	       tide_test_pair(&t->fresh[0], tide_test_initiator_fresh) ?:
	       tide_test_pair(&t->own[1], tide_test_responder) ?:
	       tide_test_pair(&t->fresh[1], tide_test_responder_fresh);
}

static int __init tide_test_message_1(struct tide_test *t)
{
	const char *text = tide_test_message[0].text;

	return tide_noise_write_1(&t->side[0], &t->fresh[0], text, strlen(text), t->message) ?:
	       tide_noise_read_1(&t->side[1], t->message, strlen(text), t->text) ?:
	       tide_test_is(t, 0) ?:
	       tide_test_same(t->side[1].peer, t->own[0].point, TIDE_POINT_SIZE);
}

static int __init tide_test_message_2(struct tide_test *t)
{
	const char *text = tide_test_message[1].text;

	return tide_noise_write_2(&t->side[1], &t->fresh[1], text, strlen(text), t->message) ?:
	       tide_noise_read_2(&t->side[0], t->message, strlen(text), t->text) ?:
	       tide_test_is(t, 1);
}

static int __init tide_test_hashes(struct tide_test *t)
{
	return hex2bin(t->wanted, tide_test_hash, TIDE_HASH_SIZE) ?:
	       tide_test_same(t->side[0].hash, t->wanted, TIDE_HASH_SIZE) ?:
	       tide_test_same(t->side[1].hash, t->wanted, TIDE_HASH_SIZE);
}

/* One message under a key of the session, its first. */
static int __init tide_test_sealed(struct tide_test *t, const u8 *key, unsigned int i)
{
	const char *text = tide_test_message[i].text;
	struct tide_aead *aead = t->side[0].aead;

	return tide_aead_key(aead, key) ?:
	       tide_aead_seal(aead, 0, "", 0, text, strlen(text), t->message) ?:
	       tide_aead_open(aead, 0, "", 0, t->message, strlen(text), t->text) ?:
	       tide_test_is(t, i);
}

static int __init tide_test_session(struct tide_test *t)
{
	return tide_noise_split(&t->side[0], &t->keys[0]) ?:
	       tide_noise_split(&t->side[1], &t->keys[1]) ?:
	       tide_test_same(&t->keys[0], &t->keys[1], sizeof(t->keys[0])) ?:
	       tide_test_sealed(t, t->keys[0].from_initiator, 2) ?:
	       tide_test_sealed(t, t->keys[0].from_responder, 3);
}

/* What was altered, has another place or another header is nothing. */
static int __init tide_test_forged(struct tide_test *t)
{
	struct tide_aead *aead = t->side[0].aead;
	int err = tide_aead_seal(aead, 7, "header", 6, "text", 4, t->message);

	if (err)
		return err;
	if (tide_aead_open(aead, 8, "header", 6, t->message, 4, t->text) != -EBADMSG ||
	    tide_aead_open(aead, 7, "HEADER", 6, t->message, 4, t->text) != -EBADMSG)
		return -EINVAL;
	t->message[0] ^= 1;
	if (tide_aead_open(aead, 7, "header", 6, t->message, 4, t->text) != -EBADMSG)
		return -EINVAL;
	t->message[0] ^= 1;
	return tide_aead_open(aead, 7, "header", 6, t->message, 4, t->text);
}

/* A point that contributes nothing agrees on nothing. */
static int __init tide_test_low_order(struct tide_test *t)
{
	memset(t->text, 0, TIDE_POINT_SIZE);
	if (tide_agree(t->message, t->own[0].secret, t->text) != -EBADMSG)
		return -EINVAL;
	t->text[0] = 1;
	return tide_agree(t->message, t->own[0].secret, t->text) == -EBADMSG ? 0 : -EINVAL;
}

/* Keys and texts are 0, 1, 2 and so on, as in the reference implementation's vectors. */
struct tide_mac_vector {
	size_t size;
	const char *tag;
};

static const struct tide_mac_vector tide_mac_vectors[] __initconst = {
	{ 24, "2db479ae78bd50d8882a8a178a6132ad" },
	{ 31, "2939b0183223fafc1723de4f52c43d35" },
	{ 63, "5150d1772f50834a503e069a973fbd7c" },
};

static int __init tide_test_mac(struct tide_test *t)
{
	struct tide_mac_key key;
	u8 text[64], tag[TIDE_MAC_SIZE], expected[TIDE_MAC_SIZE];
	unsigned int i;

	for (i = 0; i < sizeof(text); i++)
		text[i] = i;
	tide_mac_key(&key, text);
	for (i = 0; i < ARRAY_SIZE(tide_mac_vectors); i++) {
		size_t fixed = sizeof(u64) + TIDE_MAC_HEAD_SIZE;

		tide_mac(&key, get_unaligned_le64(text), text + sizeof(u64), text + fixed,
			 tide_mac_vectors[i].size - fixed, tag);
		if (hex2bin(expected, tide_mac_vectors[i].tag, sizeof(expected)) ||
		    memcmp(tag, expected, sizeof(tag)))
			return -EINVAL;
	}
	return 0;
}

static int __init tide_test_begin(struct tide_test *t)
{
	return tide_noise_begin(&t->side[0], &t->own[0], t->own[1].point, TIDE_TEST_PROLOGUE) ?:
	       tide_noise_begin(&t->side[1], &t->own[1], NULL, TIDE_TEST_PROLOGUE);
}

struct tide_test_part {
	const char *name;
	int (*run)(struct tide_test *t);
};

static const struct tide_test_part tide_tests[] __initconst = {
	{ "key pairs", tide_test_keys },
	{ "begin", tide_test_begin },
	{ "message 1", tide_test_message_1 },
	{ "message 2", tide_test_message_2 },
	{ "hash of the handshake", tide_test_hashes },
	{ "session keys", tide_test_session },
	{ "a forged message", tide_test_forged },
	{ "points of low order", tide_test_low_order },
	{ "tags of frames in the clear", tide_test_mac },
};

/**
 * tide_selftest_init() - run the tests, if they are asked for
 *
 * Return: 0, -EBADMSG when something else came out, or another negative errno.
 */
int __init tide_selftest_init(void)
{
	struct tide_test *t;
	unsigned int i;
	int err = 0;

	if (!tide_selftest_wanted)
		return 0;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(tide_tests) && !err; i++) {
		err = tide_tests[i].run(t);
		if (err)
			pr_err("self-test: %s: failed\n", tide_tests[i].name);
	}
	for (i = 0; i < ARRAY_SIZE(t->side); i++)
		tide_noise_end(&t->side[i]);
	kfree_sensitive(t);
	if (!err)
		pr_info("self-test: handshake passed\n");
	return err;
}
