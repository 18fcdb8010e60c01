/* SPDX-License-Identifier: GPL-2.0-only */
/* How two guests find out who they are talking to: handshake.c. */
#ifndef TIDE_HANDSHAKE_H
#define TIDE_HANDSHAKE_H

#include "base/identity.h"
#include "base/noise.h"
#include "uapi/wire.h"

struct tide_wire;

/* Why there is no session; handshake.c has the names, ABI.md what they mean. */
enum tide_reason {
	TIDE_NOT_REFUSED,
	TIDE_UNREACHABLE,	/* nobody answers, or not in time */
	TIDE_NOT_A_LENDER,	/* somebody answers, but not as a lender */
	TIDE_OTHER_VERSION,
	TIDE_OTHER_IDENTITY,	/* a lender, but not the one that was meant */
	TIDE_UNKNOWN_IDENTITY,	/* the lender does not know this guest, */
	TIDE_SWITCHED_OFF,	/* or does not lend to it now, */
	TIDE_FULL,		/* or has no room for more peers */
	TIDE_BAD_LIMITS,	/* one of the two takes nothing at once, or too much */
	TIDE_REASONS,
};

extern const char * const tide_reasons[TIDE_REASONS];

/**
 * struct tide_handshake - one that is in progress
 * @own: who this guest is, in this handshake
 * @noise: its secrets
 * @keys: of the connection, when it is over
 * @hello: what the borrower says
 * @answer: what the lender says
 * @reason: why it failed, if one end has told the other
 * @oldest: of the versions that the lender speaks, if it is that
 * @newest: likewise
 * @message: being sent or received
 */
struct tide_handshake {
	struct tide_keypair own;
	struct tide_noise noise;
	struct tide_noise_keys keys;
	struct tide_hello hello;
	struct tide_answer answer;
	enum tide_reason reason;
	u16 oldest, newest;
	union {
		struct tide_message_head head;
		struct tide_message_1 first;
		struct tide_message_2 second;
		struct tide_message_3 third;
		struct tide_rejection rejection;
	} message;
};

struct tide_handshake *tide_handshake_create(void);
void tide_handshake_free(struct tide_handshake *hs);
int tide_handshake_borrower(struct tide_wire *wire, struct tide_handshake *hs,
			    const struct tide_identity *lender);
int tide_handshake_hello(struct tide_wire *wire, struct tide_handshake *hs);
int tide_handshake_lender(struct tide_wire *wire, struct tide_handshake *hs,
			  enum tide_answer_code code);
bool tide_handshake_clear(const struct tide_handshake *hs);
void tide_handshake_reject(struct tide_wire *wire, enum tide_reject_code code);

#endif /* TIDE_HANDSHAKE_H */
