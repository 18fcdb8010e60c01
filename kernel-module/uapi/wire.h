/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0) */
/*
 * The bytes that borrower and lender exchange. PROTOCOL.md is the text of
 * which this file is the C: little-endian, fixed layouts, every length checked
 * against the type and the count before a byte of the payload is read.
 */
#ifndef TIDE_WIRE_H
#define TIDE_WIRE_H

#include <linux/types.h>

#define TIDE_MAGIC		0x45444954u	/* "TIDE" */
#define TIDE_PROTOCOL		3
#define TIDE_PROTOCOL_OLDEST	3		/* that is spoken here */
#define TIDE_PROLOGUE		"tidepool 3"
#define TIDE_PORT		7470
#define TIDE_NAME_MAX		64		/* of a peer's directory, with the final NUL */
#define TIDE_TAG_SIZE		16		/* AES-GCM */

#define TIDE_GET_MAX		512		/* pages a GET names: 2 MiB */
#define TIDE_PUT_MAX		64		/* pages a PUT carries: 256 KiB */
#define TIDE_NOTICE_MAX		128		/* entries of EVICTED and FORGET */
#define TIDE_LINGER_MAX_S	3600		/* that a lender keeps a session alone */
#define TIDE_MAX_LANES		4		/* of a session, its GET channel included */

/*
 * A session has two connections, so that no get waits behind a batch of puts, and
 * more lanes if both ends like, so that many processors fetch at the same time.
 */
enum tide_channel {
	TIDE_CHANNEL_GET = 0,	/* requests, replies, acknowledgements, notices */
	TIDE_CHANNEL_PUT = 1,	/* PUT frames only, borrower to lender */
	TIDE_CHANNEL_LANE = 2,	/* requests and replies; pings and pongs */
};

/* ---- handshake: Noise_IK_25519_AESGCM_SHA256, the borrower begins ---- */

enum tide_message_type {
	TIDE_MESSAGE_1 = 1,	/* borrower: who it is and what it wants */
	TIDE_MESSAGE_2,		/* lender: whether it may */
	TIDE_MESSAGE_3,		/* borrower: message 1 was no repetition */
	TIDE_REJECTION,		/* lender, in the clear: there is no handshake */
};

struct tide_message_head {
	__le32	magic;
	__le16	protocol;
	__u8	type;
	__u8	code;		/* of a rejection, else 0 */
} __packed;

/* What a peer takes at once, of each at least one. The lesser of two is what both keep to. */
struct tide_limits {
	__u8	lanes;		/* connections of a session that carry requests */
	__le16	get;		/* pages that a GET names */
	__le16	put;		/* pages that a PUT carries */
	__le16	notices;	/* entries of EVICTED and FORGET */
} __packed;

#define TIDE_FEATURE_CLEAR	1	/* metadata are authenticated, not encrypted */
#define TIDE_FEATURES		TIDE_FEATURE_CLEAR

/* What message 1 carries. */
struct tide_hello {
	__le64	session;	/* drawn by the borrower; on PUT and LANE that of the GET channel */
	__le64	resume;		/* a former one that it would like to go on with, or 0 */
	__le64	version;	/* the newest that it has given */
	__le64	size_bytes;	/* what it would like to borrow */
	__le64	features;	/* that it would like */
	__u8	channel;
	struct tide_limits limits;
} __packed;

enum tide_answer_code {
	TIDE_WELCOME,
	TIDE_ANSWER_UNKNOWN,	/* no borrower has this identity */
	TIDE_ANSWER_DISABLED,	/* one has, and may not connect now */
	TIDE_ANSWER_LIMITS,	/* its limits are none */
};

/* What message 2 carries. */
struct tide_answer {
	__le64	features;	/* that both have */
	__u8	code;
	struct tide_limits limits;
} __packed;

struct tide_message_1 {
	struct tide_message_head head;
	__u8	fresh[32];			/* the borrower's ephemeral point */
	__u8	identity[32 + TIDE_TAG_SIZE];	/* sealed */
	__u8	hello[sizeof(struct tide_hello) + TIDE_TAG_SIZE];	/* sealed */
} __packed;

struct tide_message_2 {
	struct tide_message_head head;
	__u8	fresh[32];			/* the lender's ephemeral point */
	__u8	answer[sizeof(struct tide_answer) + TIDE_TAG_SIZE];	/* sealed */
} __packed;

/* The first that is sealed with the session's own keys: nothing, and this head. */
struct tide_message_3 {
	struct tide_message_head head;
	__u8	tag[TIDE_TAG_SIZE];
} __packed;

enum tide_reject_code {
	TIDE_REJECT_VERSION = 1,	/* none of those that are spoken here */
	TIDE_REJECT_IDENTITY,	/* message 1 is not for this lender */
	TIDE_REJECT_FULL,	/* too many are in the handshake */
};

struct tide_rejection {
	struct tide_message_head head;
	__le16	oldest, newest;	/* versions that are spoken here */
	__le32	reserved;
} __packed;

/* ---- frames ---- */

#define TIDE_REKEY_FRAMES	16384		/* of a direction: then its key is renewed */

enum tide_frame_type {
	TIDE_GET = 1,	/* borrower: tide_get_head, count x tide_get_item */
	TIDE_DATA,	/* lender: count x tide_data_item, pages of the hits */
	TIDE_PUT,	/* borrower: count x tide_put_item, count pages */
	TIDE_PUT_ACK,	/* lender: __le64 bitmap of the pages it keeps */
	TIDE_EVICTED,	/* lender: count x tide_page_id that it has dropped */
	TIDE_FORGET,	/* borrower: count x tide_forget_item, a hint */
	TIDE_PING,	/* borrower: empty; id comes back */
	TIDE_PONG,	/* lender: empty */
	TIDE_GRANT,	/* lender: tide_grant, what the borrower may count on */
	TIDE_RESIZE,	/* borrower: __le64 bytes that it would like */
	TIDE_EVICTED_BEFORE,	/* lender: __le64 version, it has nothing older */
};

#define TIDE_FLAG_EXCLUSIVE	1	/* GET: drop what you send */
#define TIDE_FLAG_RESUMED	1	/* GRANT, the first: the former session goes on */
#define TIDE_FLAG_HOLD		2	/* GRANT: put nothing until another one comes */

struct tide_frame {
	__le32	length;		/* bytes that follow this header */
	__u8	type;
	__u8	flags;
	__le16	count;
	__le64	id;
} __packed;

struct tide_get_head {
	__le64	file;
} __packed;

struct tide_get_item {
	__le64	index;
	__le64	version;
} __packed;

struct tide_data_item {
	__le64	version;	/* 0: a miss, without page and tag */
	__u8	tag[TIDE_TAG_SIZE];	/* as in the PUT */
} __packed;

struct tide_page_id {
	__le64	file;
	__le64	index;
	__le64	version;
} __packed;

struct tide_put_item {
	struct tide_page_id id;
	__u8	tag[TIDE_TAG_SIZE];	/* of the encrypted page, or zeros */
} __packed;

struct tide_forget_item {
	__le64	file;
	__le64	first;
	__le64	last;		/* inclusive */
	__le64	before;		/* only versions below this one */
} __packed;

struct tide_grant {
	__le64	bytes;		/* that it may use */
	__le64	linger_ms;	/* how long its pages stay when it is gone */
} __packed;

#endif /* TIDE_WIRE_H */
