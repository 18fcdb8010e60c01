/* SPDX-License-Identifier: GPL-2.0-only */
/* The root of the configfs tree: configfs.c. */
#ifndef TIDE_CONFIGFS_H
#define TIDE_CONFIGFS_H

int tide_control_init(void);
void tide_control_exit(void);

#endif /* TIDE_CONFIGFS_H */
