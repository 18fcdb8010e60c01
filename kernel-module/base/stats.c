// SPDX-License-Identifier: GPL-2.0-only
/*
 * What all parts count.
 */
#include "base/stats.h"

struct tide_stats tide_stats;
