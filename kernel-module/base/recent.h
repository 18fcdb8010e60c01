/* SPDX-License-Identifier: GPL-2.0-only */
/* The mean of the last seconds: recent.c. Its owner's lock guards it. */
#ifndef TIDE_RECENT_H
#define TIDE_RECENT_H

#include <linux/types.h>

#define TIDE_RECENT_SECONDS	15

struct tide_recent {
	u32 second;			/* of the newest slot */
	struct tide_recent_slot {
		u64 ns;
		unsigned int count;
	} slot[TIDE_RECENT_SECONDS];
};

void tide_recent_add(struct tide_recent *recent, u64 ns);
u64 tide_recent_mean(struct tide_recent *recent, unsigned int *count);

#endif /* TIDE_RECENT_H */
