// SPDX-License-Identifier: GPL-2.0
/* HMAC-SHA256 (FIPS 180-4, RFC 2104), for peers that pass the handshake. */
#include <stdint.h>
#include <string.h>

#include "hmac.h"

#define BLOCK	64

struct sha256 {
	uint32_t state[8];
	uint8_t block[BLOCK];
	uint64_t length;	/* bytes so far */
};

static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t word, int bits)
{
	return word >> bits | word << (32 - bits);
}

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

static void take_block(struct sha256 *sha, const uint8_t *block)
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++)
		w[i] = big_endian(block + 4 * i);
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		       (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, sha->state, sizeof(s));
	for (int i = 0; i < 64; i++) {
		uint32_t one = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) +
			       ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
		uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) +
			       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof(s[0]));
		s[4] += one;
		s[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		sha->state[i] += s[i];
}

static void begin(struct sha256 *sha)
{
	*sha = (struct sha256) { .state = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	} };
}

static void take(struct sha256 *sha, const void *data, size_t length)
{
	for (const uint8_t *byte = data; length--; byte++) {
		sha->block[sha->length++ % BLOCK] = *byte;
		if (sha->length % BLOCK == 0)
			take_block(sha, sha->block);
	}
}

static void end(struct sha256 *sha, uint8_t *digest)
{
	uint64_t bits = sha->length * 8;
	uint8_t tail[8];

	for (int i = 0; i < 8; i++)
		tail[i] = bits >> (56 - 8 * i);
	take(sha, "\x80", 1);
	while (sha->length % BLOCK != BLOCK - sizeof(tail))
		take(sha, "", 1);
	take(sha, tail, sizeof(tail));
	for (int i = 0; i < HMAC_BYTES; i++)
		digest[i] = sha->state[i / 4] >> (24 - 8 * (i % 4));
}

static void begin_with_key(struct sha256 *sha, const uint8_t *key, uint8_t pad)
{
	uint8_t block[BLOCK];

	for (int i = 0; i < BLOCK; i++)
		block[i] = (i < HMAC_BYTES ? key[i] : 0) ^ pad;
	begin(sha);
	take(sha, block, sizeof(block));
}

void hmac(const uint8_t key[HMAC_BYTES], const struct hmac_part *parts, int count, uint8_t mac[HMAC_BYTES])
{
	struct sha256 sha;

	begin_with_key(&sha, key, 0x36);
	for (int i = 0; i < count; i++)
		take(&sha, parts[i].data, parts[i].length);
	end(&sha, mac);
	begin_with_key(&sha, key, 0x5c);
	take(&sha, mac, HMAC_BYTES);
	end(&sha, mac);
}
