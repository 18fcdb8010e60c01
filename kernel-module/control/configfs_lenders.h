/* SPDX-License-Identifier: GPL-2.0-only */
/* configfs: lenders/, with a directory for each lender: configfs_lenders.c. */
#ifndef TIDE_CONFIGFS_LENDERS_H
#define TIDE_CONFIGFS_LENDERS_H

#include <linux/configfs.h>

extern const struct config_item_type tide_lenders_type;

#endif /* TIDE_CONFIGFS_LENDERS_H */
