/* SPDX-License-Identifier: GPL-2.0-only */
/* How much of each the two ends of a session take at once: the lesser of what they said. */
#ifndef TIDE_AGREED_H
#define TIDE_AGREED_H

#include <linux/minmax.h>
#include <linux/types.h>

#include "uapi/wire.h"

/* As in struct tide_limits, and agreed on. */
struct tide_agreed {
	unsigned int lanes, get, put, notices;
};

static inline struct tide_limits tide_limits_own(void)
{
	return (struct tide_limits) {
		.lanes = TIDE_MAX_LANES,
		.get = cpu_to_le16(TIDE_GET_MAX),
		.put = cpu_to_le16(TIDE_PUT_MAX),
		.notices = cpu_to_le16(TIDE_NOTICE_MAX),
	};
}

static inline bool tide_limit_valid(__le16 limit, unsigned int most)
{
	return limit && le16_to_cpu(limit) <= most;
}

/* Are these what a peer may say? */
static inline bool tide_limits_valid(const struct tide_limits *limits)
{
	return limits->lanes && tide_limit_valid(limits->get, TIDE_GET_MAX) &&
	       tide_limit_valid(limits->put, TIDE_PUT_MAX) &&
	       tide_limit_valid(limits->notices, TIDE_NOTICE_MAX);
}

/* What both ends keep to, one of which is this guest. */
static inline struct tide_agreed tide_limits_agree(const struct tide_limits *peer)
{
	const struct tide_limits own = tide_limits_own();

	return (struct tide_agreed) {
		.lanes = min(own.lanes, peer->lanes),
		.get = min(le16_to_cpu(own.get), le16_to_cpu(peer->get)),
		.put = min(le16_to_cpu(own.put), le16_to_cpu(peer->put)),
		.notices = min(le16_to_cpu(own.notices), le16_to_cpu(peer->notices)),
	};
}

#endif /* TIDE_AGREED_H */
