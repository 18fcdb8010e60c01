/* SPDX-License-Identifier: GPL-2.0-only */
/* When the hooks are in: hooks.c. */
#ifndef TIDE_HOOKS_H
#define TIDE_HOOKS_H

#include <linux/types.h>

#include "borrower/ghost.h"

int tide_hooks_init(void);
void tide_hooks_exit(void);
int tide_hooks_hold_for_peer(void);
void tide_hooks_release_from_peer(void);
bool tide_hooks_are_in(void);
int tide_ghost_switch(enum tide_ghost_mode mode);

#endif /* TIDE_HOOKS_H */
