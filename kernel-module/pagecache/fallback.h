/* SPDX-License-Identifier: GPL-2.0-only */
/* What did not come from the pool is read from disk: fallback.c. */
#ifndef TIDE_FALLBACK_H
#define TIDE_FALLBACK_H

struct tide_read;

void tide_read_from_disk(struct tide_read *read);

#endif /* TIDE_FALLBACK_H */
