/* SPDX-License-Identifier: GPL-2.0-only */
/* configfs: borrowers/, with a directory for each borrower: configfs_borrowers.c. */
#ifndef TIDE_CONFIGFS_BORROWERS_H
#define TIDE_CONFIGFS_BORROWERS_H

#include <linux/configfs.h>

extern const struct config_item_type tide_borrowers_type;

#endif /* TIDE_CONFIGFS_BORROWERS_H */
