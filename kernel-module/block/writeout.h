/* SPDX-License-Identifier: GPL-2.0-only */
/* How the disk gets what is in a log: writeout.c. */
#ifndef TIDE_WRITEOUT_H
#define TIDE_WRITEOUT_H

#include <linux/types.h>

struct tide_log;

int tide_writeout_init(struct tide_log *log);
void tide_writeout_exit(struct tide_log *log);
void tide_writeout_arm(struct tide_log *log);
int tide_writeout_all(struct tide_log *log);
int tide_writeout_blocks(struct tide_log *log, u64 first, u64 last);
void tide_writeout_close(struct tide_log *log);
void tide_writeout_open(struct tide_log *log);

#endif /* TIDE_WRITEOUT_H */
