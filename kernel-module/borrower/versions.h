/* SPDX-License-Identifier: GPL-2.0-only */
/* Versions of pages: versions.c. */
#ifndef TIDE_VERSIONS_H
#define TIDE_VERSIONS_H

#include <linux/types.h>

u64 tide_next_version(void);
u64 tide_newest_version(void);

#endif /* TIDE_VERSIONS_H */
