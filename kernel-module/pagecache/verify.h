/* SPDX-License-Identifier: GPL-2.0-only */
/* Hits that are read from disk as well, and compared: verify.c. */
#ifndef TIDE_VERIFY_H
#define TIDE_VERIFY_H

#include <linux/fs.h>
#include <linux/types.h>

struct tide_file;

extern unsigned int tide_verify_one_in;

int tide_verify_init(void);
void tide_folio_came(struct folio *folio, struct tide_file *file,
		     const struct address_space_operations *orig, u64 changes);

#endif /* TIDE_VERIFY_H */
