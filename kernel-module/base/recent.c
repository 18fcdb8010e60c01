// SPDX-License-Identifier: GPL-2.0-only
/*
 * The mean of the last seconds.
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "base/recent.h"

static void tide_recent_turn(struct tide_recent *recent)
{
	u32 now = ktime_get_seconds();

	if (now - recent->second >= TIDE_RECENT_SECONDS)
		memset(recent->slot, 0, sizeof(recent->slot));
	else
		while (recent->second < now)
			memset(&recent->slot[++recent->second % TIDE_RECENT_SECONDS],
			       0, sizeof(recent->slot[0]));
	recent->second = now;
}

/**
 * tide_recent_add() - note one duration
 * @recent: locked by the caller
 * @ns: duration in nanoseconds
 */
void tide_recent_add(struct tide_recent *recent, u64 ns)
{
	struct tide_recent_slot *slot;

	tide_recent_turn(recent);
	slot = &recent->slot[recent->second % TIDE_RECENT_SECONDS];
	slot->ns += ns;
	slot->count++;
}

/**
 * tide_recent_mean() - the mean of the last TIDE_RECENT_SECONDS
 * @recent: locked by the caller
 * @count: set to how many durations it is made of
 *
 * Return: nanoseconds, 0 without any.
 */
u64 tide_recent_mean(struct tide_recent *recent, unsigned int *count)
{
	u64 ns = 0;
	int i;

	tide_recent_turn(recent);
	*count = 0;
	for (i = 0; i < TIDE_RECENT_SECONDS; i++) {
		ns += recent->slot[i].ns;
		*count += recent->slot[i].count;
	}
	return *count ? div_u64(ns, *count) : 0;
}
