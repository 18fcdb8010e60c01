/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tests break mechanisms on purpose, to show that each is needed. They build the
 * module with TIDEPOOL_BREAKABLE=y; its parameter `broken` then names those that are,
 * for as long as it is loaded. In every other build none can be: nothing of this is
 * in it.
 */
#ifndef TIDE_BROKEN_H
#define TIDE_BROKEN_H

#ifdef TIDEPOOL_BREAKABLE
#include <linux/types.h>

bool tide_is_broken(const char *what);
#define tide_broken(what)	tide_is_broken(#what)
#else
#define tide_broken(what)	false
#endif

#endif /* TIDE_BROKEN_H */
