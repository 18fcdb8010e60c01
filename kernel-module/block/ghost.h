/* SPDX-License-Identifier: GPL-2.0-only */
/* What ghost mode is told of block devices: ghost.c. */
#ifndef TIDE_BLOCK_GHOST_H
#define TIDE_BLOCK_GHOST_H

#include "borrower/ghost.h"

struct tide_device;
struct tide_io;

void tide_io_ghost_read(struct tide_io *io);
void tide_io_ghost_changed(struct tide_io *io);
void tide_device_ghost_gone(const struct tide_device *device);

#endif /* TIDE_BLOCK_GHOST_H */
