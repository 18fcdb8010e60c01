/* SPDX-License-Identifier: GPL-2.0-only */
/* What is evicted, added and dirtied: tracepoints.c. */
#ifndef TIDE_TRACEPOINTS_H
#define TIDE_TRACEPOINTS_H

#include <linux/jump_label.h>

DECLARE_STATIC_KEY_FALSE(tide_has_peers);

/* Do the hooks work for a peer, and not for ghost mode alone? */
#define tide_serves_peers()	static_branch_unlikely(&tide_has_peers)

int tide_probes_install(void);
void tide_probes_remove(void);

#endif /* TIDE_TRACEPOINTS_H */
