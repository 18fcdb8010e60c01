/* SPDX-License-Identifier: GPL-2.0-only */
/* The catalog's memory, given back: catalog_shrinker.c. */
#ifndef TIDE_CATALOG_SHRINKER_H
#define TIDE_CATALOG_SHRINKER_H

int tide_shrinker_init(void);
void tide_shrinker_exit(void);

#endif /* TIDE_CATALOG_SHRINKER_H */
