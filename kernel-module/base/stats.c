// SPDX-License-Identifier: GPL-2.0-only
/*
 * What all parts count.
 */
#include <linux/export.h>

#include "base/stats.h"

DEFINE_PER_CPU(struct tide_stats, tide_stats);
EXPORT_PER_CPU_SYMBOL_GPL(tide_stats);
