/* SPDX-License-Identifier: GPL-2.0-only */
/* Files that end: kill.c. */
#ifndef TIDE_KILL_H
#define TIDE_KILL_H

struct super_block;
struct tide_file;

void tide_file_kill(struct tide_file *file);
void tide_files_kill(const struct super_block *sb);

#endif /* TIDE_KILL_H */
