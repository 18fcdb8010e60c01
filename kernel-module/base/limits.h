/* SPDX-License-Identifier: GPL-2.0-only */
/* How much may be borrowed, lent, or set as a quota. */
#ifndef TIDE_LIMITS_H
#define TIDE_LIMITS_H

#include <linux/sizes.h>
#include <linux/types.h>

#define TIDE_MIN_BYTES		((u64)SZ_1M)	/* least that is worth lending */
#define TIDE_MAX_BYTES		((u64)SZ_1T * 16)

#endif /* TIDE_LIMITS_H */
