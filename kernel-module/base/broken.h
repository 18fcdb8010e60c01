/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tests build the module with one mechanism broken on purpose, to show that
 * it is needed: -DTIDEPOOL_BREAK_<mechanism>.
 */
#ifndef TIDE_BROKEN_H
#define TIDE_BROKEN_H

#include <linux/kconfig.h>

#define tide_broken(what)	__is_defined(TIDEPOOL_BREAK_##what)

#endif /* TIDE_BROKEN_H */
