// SPDX-License-Identifier: GPL-2.0-only
/* Versions of pages: no two that were ever put have the same. */
#include <linux/atomic.h>
#include <linux/timex.h>

#include "base/broken.h"
#include "borrower/versions.h"

#define TIDE_STRIDE_MASK	0xfff	/* between versions */

static atomic64_t tide_version = ATOMIC64_INIT(0);

/**
 * tide_next_version() - a version that no page has had since the module loaded
 *
 * They grow by strides that the clock decides: of two time lines that began alike, the
 * one soon gives versions that the other never gave.
 *
 * Context: any.
 */
u64 tide_next_version(void)
{
	unsigned long stride = tide_broken(STRIDES) ? 0 : random_get_entropy() & TIDE_STRIDE_MASK;

	return atomic64_add_return(1 + stride, &tide_version);
}

/**
 * tide_newest_version() - no newer one has been given
 */
u64 tide_newest_version(void)
{
	return atomic64_read(&tide_version);
}
