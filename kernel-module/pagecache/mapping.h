/* SPDX-License-Identifier: GPL-2.0-only */
/* The replaced a_ops, through which misses come: mapping.c. */
#ifndef TIDE_MAPPING_H
#define TIDE_MAPPING_H

#include <linux/types.h>

struct address_space;
struct tide_file;

int tide_mapping_init(void);
void tide_mapping_retire(void);
void tide_mapping_wait(void);
bool tide_mapping_hooked(const struct address_space *mapping);
void tide_hook_mapping(struct tide_file *file, struct address_space *mapping);
void tide_unhook_mapping(struct tide_file *file);

#endif /* TIDE_MAPPING_H */
