/* SPDX-License-Identifier: GPL-2.0-only */
/* Which files, and what tells them apart: filesystem.c. */
#ifndef TIDE_FILESYSTEM_H
#define TIDE_FILESYSTEM_H

#include <linux/fs.h>
#include <linux/types.h>

bool tide_eligible_super(const struct super_block *sb);
bool tide_watched(struct address_space *mapping);
bool tide_eligible(struct address_space *mapping);
bool tide_exchanges_extents(const struct super_block *sb);
bool tide_locks_extents(const struct super_block *sb);
u64 tide_volume(struct inode *inode);
void tide_name_refused(const struct address_space *mapping);

#endif /* TIDE_FILESYSTEM_H */
