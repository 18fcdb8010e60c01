/* SPDX-License-Identifier: GPL-2.0-only */
/* What becomes of an evicted folio: eviction.c. */
#ifndef TIDE_EVICTION_H
#define TIDE_EVICTION_H

#include <linux/fs.h>

void tide_put_folio(struct address_space *mapping, struct folio *folio);

#endif /* TIDE_EVICTION_H */
