// SPDX-License-Identifier: GPL-2.0-only
/*
 * The handshake (PROTOCOL.md): messages of fixed size, and on the
 * lender's side no more work for a stranger than reading one takes. Message 1
 * may be a repetition of an old one; so nothing comes of it until message 3,
 * which only a borrower can send that has just now read message 2.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/net.h>
#include <linux/slab.h>

#include "base/identity.h"
#include "base/noise.h"
#include "base/primitives.h"
#include "transport/agreed.h"
#include "transport/handshake.h"
#include "transport/tcp.h"
#include "uapi/wire.h"

#define TIDE_HANDSHAKE_MS	5000
#define TIDE_PARTING_MS		1000

const char * const tide_reasons[TIDE_REASONS] = {
	[TIDE_NOT_REFUSED] = "",
	[TIDE_UNREACHABLE] = "Unreachable",
	[TIDE_NOT_A_LENDER] = "NotALender",
	[TIDE_OTHER_VERSION] = "VersionMismatch",
	[TIDE_OTHER_IDENTITY] = "OtherIdentity",
	[TIDE_UNKNOWN_IDENTITY] = "UnknownIdentity",
	[TIDE_SWITCHED_OFF] = "Disabled",
	[TIDE_FULL] = "Full",
	[TIDE_BAD_LIMITS] = "BadLimits",
};

struct tide_handshake *tide_handshake_create(void)
{
	struct tide_handshake *hs = kzalloc(sizeof(*hs), GFP_KERNEL);

	if (hs)
		tide_identity_keys(&hs->own);
	return hs;
}

void tide_handshake_free(struct tide_handshake *hs)
{
	if (hs)
		tide_noise_end(&hs->noise);
	kfree_sensitive(hs);
}

static void tide_message_head(struct tide_message_head *head, enum tide_message_type type, u8 code)
{
	*head = (struct tide_message_head) {
		.magic = cpu_to_le32(TIDE_MAGIC),
		.protocol = cpu_to_le16(TIDE_PROTOCOL),
		.type = type,
		.code = code,
	};
}

static int tide_message_send(struct tide_wire *wire, struct tide_handshake *hs,
			     enum tide_message_type type, size_t size)
{
	int err;

	tide_message_head(&hs->message.head, type, 0);
	err = tide_wire_send(wire, &hs->message, size, 0);
	return err < 0 ? err : 0;
}

/* What follows the head of a message. */
static int tide_message_rest(struct tide_wire *wire, struct tide_handshake *hs, size_t size)
{
	return tide_wire_recv(wire, &hs->message.head + 1, size - sizeof(hs->message.head));
}

/* Which of the peers sends with which of the keys is the same on both sides. */
static int tide_message_3_key(struct tide_handshake *hs)
{
	return tide_noise_split(&hs->noise, &hs->keys) ?:
	       tide_aead_key(hs->noise.aead, hs->keys.from_initiator);
}

/* ------------------------------------------------------------------ */
/* the borrower's half						       */
/* ------------------------------------------------------------------ */

static int tide_send_1(struct tide_wire *wire, struct tide_handshake *hs)
{
	struct tide_keypair fresh;
	int err;

	err = tide_keypair_draw(&fresh) ?:
	      tide_noise_write_1(&hs->noise, &fresh, &hs->hello, sizeof(hs->hello),
				 hs->message.first.fresh) ?:
	      tide_message_send(wire, hs, TIDE_MESSAGE_1, sizeof(hs->message.first));
	memzero_explicit(&fresh, sizeof(fresh));
	return err;
}

static int tide_refused(struct tide_handshake *hs, enum tide_reason reason)
{
	hs->reason = reason;
	return -EACCES;
}

static int tide_rejected(struct tide_wire *wire, struct tide_handshake *hs)
{
	static const enum tide_reason reasons[] = {
		[TIDE_REJECT_VERSION] = TIDE_OTHER_VERSION,
		[TIDE_REJECT_IDENTITY] = TIDE_OTHER_IDENTITY,
		[TIDE_REJECT_FULL] = TIDE_FULL,
	};
	u8 code = hs->message.head.code;

	if (tide_message_rest(wire, hs, sizeof(hs->message.rejection)) ||
	    code >= ARRAY_SIZE(reasons) || !reasons[code])
		return tide_refused(hs, TIDE_NOT_A_LENDER);
	hs->oldest = le16_to_cpu(hs->message.rejection.oldest);
	hs->newest = le16_to_cpu(hs->message.rejection.newest);
	return tide_refused(hs, reasons[code]);
}

static int tide_answered(struct tide_handshake *hs)
{
	if (hs->answer.features & ~hs->hello.features)
		return tide_refused(hs, TIDE_NOT_A_LENDER);
	switch (hs->answer.code) {
	case TIDE_WELCOME:
		return tide_limits_valid(&hs->answer.limits) ? 0 :
		       tide_refused(hs, TIDE_BAD_LIMITS);
	case TIDE_ANSWER_UNKNOWN:
		return tide_refused(hs, TIDE_UNKNOWN_IDENTITY);
	case TIDE_ANSWER_DISABLED:
		return tide_refused(hs, TIDE_SWITCHED_OFF);
	case TIDE_ANSWER_LIMITS:
		return tide_refused(hs, TIDE_BAD_LIMITS);
	default:
		return tide_refused(hs, TIDE_NOT_A_LENDER);
	}
}

/* Message 2, or a word why there is none. */
static int tide_receive_2(struct tide_wire *wire, struct tide_handshake *hs)
{
	const struct tide_message_head *head = &hs->message.head;
	int err = tide_wire_recv(wire, &hs->message.head, sizeof(*head));

	if (err)	/* one that is no lender hangs up */
		return err == -ECONNRESET ? tide_refused(hs, TIDE_NOT_A_LENDER) : err;
	if (le32_to_cpu(head->magic) != TIDE_MAGIC)
		return tide_refused(hs, TIDE_NOT_A_LENDER);
	if (head->type == TIDE_REJECTION)
		return tide_rejected(wire, hs);
	if (le16_to_cpu(head->protocol) != TIDE_PROTOCOL)
		return tide_refused(hs, TIDE_OTHER_VERSION);
	if (head->type != TIDE_MESSAGE_2)
		return tide_refused(hs, TIDE_NOT_A_LENDER);
	err = tide_message_rest(wire, hs, sizeof(hs->message.second));
	if (err)
		return err;
	err = tide_noise_read_2(&hs->noise, hs->message.second.fresh, sizeof(hs->answer),
				&hs->answer);
	if (err)
		return err == -EBADMSG ? tide_refused(hs, TIDE_OTHER_IDENTITY) : err;
	return tide_answered(hs);
}

static int tide_send_3(struct tide_wire *wire, struct tide_handshake *hs)
{
	struct tide_message_3 *third = &hs->message.third;

	tide_message_head(&third->head, TIDE_MESSAGE_3, 0);
	return tide_message_3_key(hs) ?:
	       tide_aead_seal(hs->noise.aead, 0, &third->head, sizeof(third->head), "", 0,
			      third->tag) ?:
	       tide_message_send(wire, hs, TIDE_MESSAGE_3, sizeof(*third));
}

/**
 * tide_handshake_borrower() - the borrower's half of the handshake
 * @wire: connected
 * @hs: just created, its @hello filled but for the limits
 * @lender: who must be at the other end
 *
 * Context: process.
 * Return: 0, -EACCES with a reason in @hs->reason, or another negative errno.
 */
int tide_handshake_borrower(struct tide_wire *wire, struct tide_handshake *hs,
			    const struct tide_identity *lender)
{
	hs->hello.limits = tide_limits_own();
	tide_wire_timeout(wire, TIDE_HANDSHAKE_MS);
	return tide_noise_begin(&hs->noise, &hs->own, lender->point, TIDE_PROLOGUE) ?:
	       tide_send_1(wire, hs) ?:
	       tide_receive_2(wire, hs) ?:
	       tide_send_3(wire, hs);
}

/* ------------------------------------------------------------------ */
/* the lender's half						       */
/* ------------------------------------------------------------------ */

/* Lets a peer read the last word before the connection is reset. */
static void tide_part(struct tide_wire *wire)
{
	ktime_t until = ktime_add_ms(ktime_get(), TIDE_PARTING_MS);
	u8 byte;

	tide_wire_finish(wire);
	tide_wire_recv_metadata(wire, &byte, sizeof(byte), until);
}

/**
 * tide_handshake_reject() - tell a stranger why there is no handshake
 * @wire: the connection, about to be closed
 * @code: the reason
 *
 * Does not wait: what is not taken at once is not said.
 *
 * Context: process.
 */
void tide_handshake_reject(struct tide_wire *wire, enum tide_reject_code code)
{
	struct tide_rejection rejection = {
		.oldest = cpu_to_le16(TIDE_PROTOCOL_OLDEST),
		.newest = cpu_to_le16(TIDE_PROTOCOL),
	};

	tide_message_head(&rejection.head, TIDE_REJECTION, code);
	tide_wire_send(wire, &rejection, sizeof(rejection), MSG_DONTWAIT);
}

static int tide_hello_check(const struct tide_hello *hello)
{
	return hello->channel > TIDE_CHANNEL_LANE ? -EPROTO : 0;
}

static int tide_receive_1(struct tide_wire *wire, struct tide_handshake *hs)
{
	const struct tide_message_head *head = &hs->message.head;
	int err = tide_wire_recv(wire, &hs->message.head, sizeof(*head));

	if (err)
		return err;
	if (le32_to_cpu(head->magic) != TIDE_MAGIC)
		return -EPROTO;
	if (le16_to_cpu(head->protocol) != TIDE_PROTOCOL)
		return -EPROTONOSUPPORT;
	if (head->type != TIDE_MESSAGE_1 || head->code)
		return -EPROTO;
	return tide_message_rest(wire, hs, sizeof(hs->message.first));
}

/**
 * tide_handshake_clear() - are the frames of the connection authenticated only?
 * @hs: over
 */
bool tide_handshake_clear(const struct tide_handshake *hs)
{
	return hs->answer.features & cpu_to_le64(TIDE_FEATURE_CLEAR);
}

/**
 * tide_handshake_hello() - receive and check the first message
 * @wire: just accepted
 * @hs: just created; its @hello is filled, and @noise.peer is who says so
 *
 * Whoever sent the message may be repeating what another has said.
 *
 * Context: process.
 * Return: 0, -EPROTO when it is no such message, -EPROTONOSUPPORT when it is
 * one of another version, -EBADMSG when it is not for this lender, or another
 * negative errno.
 */
int tide_handshake_hello(struct tide_wire *wire, struct tide_handshake *hs)
{
	int err;

	tide_wire_timeout(wire, TIDE_HANDSHAKE_MS);
	err = tide_receive_1(wire, hs) ?:
	      tide_noise_begin(&hs->noise, &hs->own, NULL, TIDE_PROLOGUE) ?:
	      tide_noise_read_1(&hs->noise, hs->message.first.fresh, sizeof(hs->hello),
				&hs->hello) ?:
	      tide_hello_check(&hs->hello);
	if (err == -EPROTONOSUPPORT || err == -EBADMSG) {
		hs->reason = err == -EBADMSG ? TIDE_OTHER_IDENTITY : TIDE_OTHER_VERSION;
		tide_handshake_reject(wire, err == -EBADMSG ? TIDE_REJECT_IDENTITY :
							      TIDE_REJECT_VERSION);
		tide_part(wire);
	}
	return err;
}

static int tide_send_2(struct tide_wire *wire, struct tide_handshake *hs)
{
	struct tide_keypair fresh;
	int err;

	err = tide_keypair_draw(&fresh) ?:
	      tide_noise_write_2(&hs->noise, &fresh, &hs->answer, sizeof(hs->answer),
				 hs->message.second.fresh) ?:
	      tide_message_send(wire, hs, TIDE_MESSAGE_2, sizeof(hs->message.second));
	memzero_explicit(&fresh, sizeof(fresh));
	return err;
}

static int tide_receive_3(struct tide_wire *wire, struct tide_handshake *hs)
{
	struct tide_message_3 *third = &hs->message.third;
	struct tide_message_head expected;
	u8 nothing;
	int err = tide_wire_recv(wire, third, sizeof(*third));

	if (err)
		return err;
	tide_message_head(&expected, TIDE_MESSAGE_3, 0);
	if (memcmp(&third->head, &expected, sizeof(expected)))
		return -EPROTO;
	return tide_message_3_key(hs) ?:
	       tide_aead_open(hs->noise.aead, 0, &third->head, sizeof(third->head),
			      third->tag, 0, &nothing);
}

/**
 * tide_handshake_lender() - the lender's half, after the first message
 * @wire: the connection
 * @hs: with the hello received
 * @code: whether the borrower is welcome, if its limits are any
 *
 * Context: process.
 * Return: 0 when the borrower is welcome and has shown that it is there now,
 * -EACCES when it is not welcome, -EBADMSG when somebody repeated an old
 * message, or another negative errno.
 */
int tide_handshake_lender(struct tide_wire *wire, struct tide_handshake *hs,
			  enum tide_answer_code code)
{
	int err;

	if (code == TIDE_WELCOME && !tide_limits_valid(&hs->hello.limits))
		code = TIDE_ANSWER_LIMITS;
	hs->answer = (struct tide_answer) {
		.features = hs->hello.features & cpu_to_le64(TIDE_FEATURES),
		.code = code,
		.limits = tide_limits_own(),
	};
	err = tide_send_2(wire, hs);
	if (err)
		return err;
	if (code != TIDE_WELCOME) {
		tide_part(wire);
		return tide_answered(hs);
	}
	return tide_receive_3(wire, hs);
}
