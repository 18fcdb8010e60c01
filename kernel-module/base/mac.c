// SPDX-License-Identifier: GPL-2.0-only
/*
 * SipHash-2-4 with a tag of 128 bits (Aumasson and Bernstein, INDOCRYPT 2012, and
 * their reference implementation), of a number, a header and a text, as if they
 * stood side by side. The kernel's own siphash() has tags of 64 bits and wants one
 * piece; its permutation is what is used here.
 *
 * For a hundred bytes that is a seventh of the instructions that the crypto
 * API needs for AES-GCM, which is why there is a second way at all.
 */
#include <linux/siphash.h>
#include <linux/string.h>

#include "base/compat.h"
#include "base/mac.h"

struct tide_sip {
	u64 v0, v1, v2, v3;
};

/* What is marked stays in registers: a text is a few words. */
static __always_inline void tide_sip_rounds(struct tide_sip *s, unsigned int rounds)
{
	while (rounds--)
		SIPHASH_PERMUTATION(s->v0, s->v1, s->v2, s->v3);
}

static __always_inline void tide_sip_word(struct tide_sip *s, u64 word)
{
	s->v3 ^= word;
	tide_sip_rounds(s, 2);
	s->v0 ^= word;
}

/* The last bytes, and the length of all. */
static u64 tide_sip_last(const u8 *at, unsigned int left, size_t length)
{
	u64 word = 0;

	memcpy(&word, at, left);
	return le64_to_cpu((__force __le64)word) | (u64)length << 56;
}

static __always_inline u64 tide_sip_out(struct tide_sip *s)
{
	tide_sip_rounds(s, 4);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/**
 * tide_mac_key() - a key of bytes that are as good as drawn
 * @key: to be filled
 * @bytes: TIDE_MAC_SIZE of them
 */
void tide_mac_key(struct tide_mac_key *key, const u8 *bytes)
{
	key->word[0] = get_unaligned_le64(bytes);
	key->word[1] = get_unaligned_le64(bytes + sizeof(u64));
}

/**
 * tide_mac() - the tag of a number, a header and a text
 * @key: that nobody else has
 * @number: of this text
 * @head: TIDE_MAC_HEAD_SIZE bytes
 * @text: the text
 * @size: of it, in bytes
 * @tag: TIDE_MAC_SIZE bytes, to be filled
 *
 * Context: any.
 */
void tide_mac(const struct tide_mac_key *key, u64 number, const void *head, const void *text,
	      size_t size, u8 *tag)
{
	const u8 *at = text, *words_end = at + round_down(size, sizeof(u64));
	struct tide_sip s = {
		.v0 = SIPHASH_CONST_0 ^ key->word[0],
		.v1 = SIPHASH_CONST_1 ^ key->word[1] ^ 0xee,
		.v2 = SIPHASH_CONST_2 ^ key->word[0],
		.v3 = SIPHASH_CONST_3 ^ key->word[1],
	};

	tide_sip_word(&s, number);
	tide_sip_word(&s, get_unaligned_le64(head));
	tide_sip_word(&s, get_unaligned_le64(head + sizeof(u64)));
	for (; at < words_end; at += sizeof(u64))
		tide_sip_word(&s, get_unaligned_le64(at));
	tide_sip_word(&s, tide_sip_last(at, size % sizeof(u64),
					sizeof(number) + TIDE_MAC_HEAD_SIZE + size));
	s.v2 ^= 0xee;
	put_unaligned_le64(tide_sip_out(&s), tag);
	s.v1 ^= 0xdd;
	put_unaligned_le64(tide_sip_out(&s), tag + sizeof(u64));
}
