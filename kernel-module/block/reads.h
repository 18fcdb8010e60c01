/* SPDX-License-Identifier: GPL-2.0-only */
/* What a bio reads, from the pool and from the disk: reads.c. */
#ifndef TIDE_READS_H
#define TIDE_READS_H

struct tide_io;

int tide_io_read(struct tide_io *io);

#endif /* TIDE_READS_H */
