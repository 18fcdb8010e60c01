/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the pure parts compute what they should: selftest.c. */
#ifndef TIDE_PARTS_TEST_H
#define TIDE_PARTS_TEST_H

int tide_parts_test_init(void);

#endif /* TIDE_PARTS_TEST_H */
