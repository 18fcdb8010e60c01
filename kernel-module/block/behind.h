/* SPDX-License-Identifier: GPL-2.0-only */
/* A device that writes behind: behind.c. */
#ifndef TIDE_BEHIND_H
#define TIDE_BEHIND_H

#include <linux/types.h>

struct tide_device;
struct tide_io;

bool tide_behind_write(struct tide_io *io);
bool tide_behind_read(struct tide_io *io);
int tide_behind_flush(struct tide_device *device);
bool tide_behind_refuses(struct tide_io *io);
int tide_behind_create(struct tide_device *device, unsigned int mib);
void tide_behind_destroy(struct tide_device *device);

#endif /* TIDE_BEHIND_H */
