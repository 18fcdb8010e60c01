/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints, and when all hooks are in: tracepoints.c. */
#ifndef TIDE_TRACEPOINTS_H
#define TIDE_TRACEPOINTS_H

#include <linux/jump_label.h>
#include <linux/types.h>

DECLARE_STATIC_KEY_FALSE(tide_has_peers);

/* Do the hooks work for a peer, and not for ghost mode alone? */
#define tide_serves_peers()	static_branch_unlikely(&tide_has_peers)

int tide_hooks_init(void);
void tide_hooks_exit(void);
int tide_hooks_hold(void);
void tide_hooks_release(void);
int tide_hooks_hold_for_peer(void);
void tide_hooks_release_from_peer(void);
bool tide_hooks_are_in(void);

#endif /* TIDE_TRACEPOINTS_H */
