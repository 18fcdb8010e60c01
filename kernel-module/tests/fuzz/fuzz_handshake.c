// SPDX-License-Identifier: GPL-2.0
/* Both halves of the handshake (handshake.c, noise.c) against a peer that sends what it likes. */
#include "transport/handshake.c"
#include "base/noise.c"

#include "fuzz.h"

/* What a text that is sealed ends with: whether it is for this side is drawn. */
static bool sealed_well;

/* ---- cryptography: sizes are real, secrets are not ---- */

int tide_hash(u8 *hash, const void *first, size_t first_size, const void *second, size_t second_size)
{
	u8 sum = 0;

	if (first_size > 64 || second_size > TIDE_SHORT_MAX)
		return -EMSGSIZE;
	for (size_t i = 0; i < first_size; i++)
		sum += ((const u8 *)first)[i];
	for (size_t i = 0; i < second_size; i++)
		sum += ((const u8 *)second)[i];
	memset(hash, sum, TIDE_HASH_SIZE);
	return 0;
}

int tide_hmac(u8 *mac, const u8 *key, const void *data, size_t size)
{
	return tide_hash(mac, key, TIDE_HASH_SIZE, data, size);
}

void tide_identity_keys(struct tide_keypair *own)
{
	memset(own, 3, sizeof(*own));
}

int tide_keypair_draw(struct tide_keypair *pair)
{
	memset(pair, 3, sizeof(*pair));
	return fuzz_one_in(500) ? -EINTR : 0;
}

int tide_agree(u8 *shared, const u8 *secret, const u8 *point)
{
	for (size_t i = 0; i < TIDE_POINT_SIZE; i++)
		shared[i] = secret[i] ^ point[i];
	return fuzz_one_in(50) ? -EBADMSG : 0;
}

struct tide_aead *tide_aead_create(void)
{
	return malloc(TIDE_AEAD_KEY_SIZE);
}

void tide_aead_free(struct tide_aead *aead)
{
	free(aead);
}

int tide_aead_key(struct tide_aead *aead, const u8 *key)
{
	memcpy(aead, key, TIDE_AEAD_KEY_SIZE);
	return 0;
}

int tide_aead_seal(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size, const void *text, size_t size,
		   u8 *sealed)
{
	u8 hash[TIDE_HASH_SIZE];

	(void)aead;
	(void)nonce;
	fuzz_assert(ad_size <= TIDE_AD_MAX && size <= TIDE_SHORT_MAX);
	tide_hash(hash, ad, ad_size, text, size);
	memmove(sealed, text, size);
	memcpy(sealed + size, hash, TIDE_AEAD_TAG_SIZE);
	return 0;
}

int tide_aead_open(struct tide_aead *aead, u64 nonce, const void *ad, size_t ad_size, const u8 *sealed, size_t size,
		   void *text)
{
	u8 hash[TIDE_HASH_SIZE];

	(void)aead;
	(void)nonce;
	fuzz_assert(ad_size <= TIDE_AD_MAX && size <= TIDE_SHORT_MAX);
	tide_hash(hash, ad, ad_size, sealed, size + TIDE_AEAD_TAG_SIZE);
	if (!sealed_well && fuzz_one_in(3))
		return -EBADMSG;
	memcpy(text, sealed, size);
	return 0;
}

/* ---- the wire ---- */

int tide_wire_recv(struct tide_wire *wire, void *data, size_t size)
{
	return fuzz_take(wire, data, size);
}

/* What is sent must be there to the last byte. */
int tide_wire_send(struct tide_wire *wire, void *data, size_t size, int flags)
{
	u8 copy[sizeof(struct tide_handshake)];

	(void)wire;
	(void)flags;
	memcpy(copy, data, size);
	fuzz_assert(((struct tide_message_head *)copy)->magic == TIDE_MAGIC);
	return size;
}

void tide_wire_finish(struct tide_wire *wire)
{
	(void)wire;
}

void tide_wire_timeout(struct tide_wire *wire, unsigned int ms)
{
	(void)wire;
	(void)ms;
}

/* ---- messages ---- */

static void add_head(u8 type, u8 code)
{
	struct tide_message_head head = {
		.magic = fuzz_one_in(50) ? fuzz_draw(UINT32_MAX) : TIDE_MAGIC,
		.protocol = fuzz_one_in(20) ? fuzz_draw(6) : TIDE_PROTOCOL,
		.type = fuzz_one_in(20) ? fuzz_draw(256) : type,
		.code = code,
	};

	fuzz_append(&head, sizeof(head));
}

/* Mostly such as there are. */
static struct tide_limits draw_limits(void)
{
	return (struct tide_limits) {
		.lanes = fuzz_one_in(20) ? 0 : 1 + fuzz_draw(255),
		.get = fuzz_one_in(20) ? fuzz_draw(65536) : 1 + fuzz_draw(TIDE_GET_MAX),
		.put = fuzz_one_in(20) ? fuzz_draw(65536) : 1 + fuzz_draw(TIDE_PUT_MAX),
		.notices = fuzz_one_in(20) ? fuzz_draw(65536) : 1 + fuzz_draw(TIDE_NOTICE_MAX),
	};
}

/* None is 0, and none more than there is room for. */
static void check_agreed(const struct tide_limits *peer)
{
	struct tide_agreed agreed = tide_limits_agree(peer);

	fuzz_assert(agreed.lanes && agreed.lanes <= TIDE_MAX_LANES && agreed.lanes <= peer->lanes);
	fuzz_assert(agreed.get && agreed.get <= TIDE_GET_MAX && agreed.get <= peer->get);
	fuzz_assert(agreed.put && agreed.put <= TIDE_PUT_MAX && agreed.put <= peer->put);
	fuzz_assert(agreed.notices && agreed.notices <= TIDE_NOTICE_MAX && agreed.notices <= peer->notices);
}

static void add_hello(void)
{
	struct tide_hello hello = {
		.session = fuzz_draw(UINT64_MAX), .channel = fuzz_draw(fuzz_one_in(10) ? 256 : 3), .limits = draw_limits(),
	};

	add_head(TIDE_MESSAGE_1, fuzz_one_in(50));
	fuzz_append_random(TIDE_POINT_SIZE + TIDE_POINT_SIZE + TIDE_AEAD_TAG_SIZE);
	fuzz_append(&hello, sizeof(hello));
	fuzz_append_random(TIDE_AEAD_TAG_SIZE);
}

static void add_answer(void)
{
	struct tide_answer answer = {
		.code = fuzz_one_in(3) ? fuzz_draw(256) : TIDE_WELCOME, .limits = draw_limits(),
	};

	if (fuzz_one_in(3)) {
		add_head(TIDE_REJECTION, fuzz_draw(fuzz_one_in(2) ? 256 : 8));
		fuzz_append_random(sizeof(struct tide_rejection) - sizeof(struct tide_message_head));
		return;
	}
	add_head(TIDE_MESSAGE_2, 0);
	fuzz_append_random(TIDE_POINT_SIZE);
	fuzz_append(&answer, sizeof(answer));
	fuzz_append_random(TIDE_AEAD_TAG_SIZE);
}

static unsigned long lends(struct tide_wire *wire, struct tide_handshake *hs)
{
	enum tide_answer_code code = fuzz_draw(3);
	int err;

	add_hello();
	add_head(TIDE_MESSAGE_3, 0);
	fuzz_append_random(TIDE_AEAD_TAG_SIZE);
	wire->left = fuzz_one_in(4) ? fuzz_draw(fuzz_length + 1) : fuzz_length;
	if (tide_handshake_hello(wire, hs))
		return 1;
	fuzz_assert(hs->hello.channel <= TIDE_CHANNEL_LANE);
	err = tide_handshake_lender(wire, hs, code);
	fuzz_assert(err || code == TIDE_WELCOME);
	if (!err)
		check_agreed(&hs->hello.limits);
	return 2;
}

static unsigned long borrows(struct tide_wire *wire, struct tide_handshake *hs)
{
	const struct tide_identity lender = { { 9 } };
	int err;

	add_answer();
	wire->left = fuzz_one_in(4) ? fuzz_draw(fuzz_length + 1) : fuzz_length;
	err = tide_handshake_borrower(wire, hs, &lender);
	fuzz_assert((err == -EACCES) == (hs->reason != TIDE_NOT_REFUSED));
	fuzz_assert(hs->reason < TIDE_REASONS && tide_reasons[hs->reason]);
	fuzz_assert(err || hs->answer.code == TIDE_WELCOME);
	if (!err)
		check_agreed(&hs->answer.limits);
	return 1;
}

unsigned long fuzz_connection(void)
{
	struct tide_handshake *hs = tide_handshake_create();
	struct tide_wire wire = { .input = fuzz_input };
	unsigned long messages;

	sealed_well = !fuzz_one_in(4);
	messages = fuzz_one_in(2) ? lends(&wire, hs) : borrows(&wire, hs);
	tide_handshake_free(hs);
	return messages;
}
