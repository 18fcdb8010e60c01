/* SPDX-License-Identifier: GPL-2.0-only */
/* What changes on a disk, and what of it is put: writes.c. */
#ifndef TIDE_WRITES_H
#define TIDE_WRITES_H

struct tide_device;
struct tide_io;

void tide_io_changes(struct tide_io *io);
int tide_io_write(struct tide_io *io);
void tide_io_put(struct tide_io *io);
void tide_device_forget(struct tide_device *device);

#endif /* TIDE_WRITES_H */
