/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the arithmetic computes what others do: selftest.c. */
#ifndef TIDE_SELFTEST_H
#define TIDE_SELFTEST_H

#include <linux/types.h>

extern bool tide_selftest_wanted;

int tide_selftest_init(void);

#endif /* TIDE_SELFTEST_H */
