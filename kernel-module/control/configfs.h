/* SPDX-License-Identifier: GPL-2.0-only */
/* The configfs tree: its root (configfs.c), and what lies in its two folders. */
#ifndef TIDE_CONFIGFS_H
#define TIDE_CONFIGFS_H

#include <linux/configfs.h>

int tide_control_init(void);
void tide_control_exit(void);

extern const struct config_item_type tide_lenders_type;		/* configfs_lenders.c */
extern const struct config_item_type tide_borrowers_type;	/* configfs_borrowers.c */

#endif /* TIDE_CONFIGFS_H */
