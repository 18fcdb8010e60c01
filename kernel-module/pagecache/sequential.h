/* SPDX-License-Identifier: GPL-2.0-only */
/* What is read in order need not go to the pool: sequential.c. */
#ifndef TIDE_SEQUENTIAL_H
#define TIDE_SEQUENTIAL_H

#include <linux/fs.h>
#include <linux/types.h>

struct tide_file;

bool tide_sequential_wants(struct inode *inode);
bool tide_sequential_read(struct tide_file *file, pgoff_t index, unsigned long nr);
void tide_sequential_drop(struct tide_file *file, pgoff_t first, pgoff_t last);
bool tide_sequential_take(struct tide_file *file, pgoff_t first, pgoff_t last);
void tide_sequential_free(struct tide_file *file);

#endif /* TIDE_SEQUENTIAL_H */
