/* SPDX-License-Identifier: GPL-2.0-only */
/* Bios whose blocks are asked for together: gather.c. */
#ifndef TIDE_GATHER_H
#define TIDE_GATHER_H

struct tide_io;

void tide_gather(struct tide_io *io);

#endif /* TIDE_GATHER_H */
