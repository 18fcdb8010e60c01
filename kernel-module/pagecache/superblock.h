/* SPDX-License-Identifier: GPL-2.0-only */
/* Which of a kind's file systems, looked at when mounted: superblock.c. */
#ifndef TIDE_SUPERBLOCK_H
#define TIDE_SUPERBLOCK_H

#include <linux/fs.h>
#include <linux/types.h>

bool tide_file_admitted(struct inode *inode);
void tide_super_left(const struct super_block *sb);
void tide_supers_forget(void);

#endif /* TIDE_SUPERBLOCK_H */
