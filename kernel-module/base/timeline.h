/* SPDX-License-Identifier: GPL-2.0-only */
/* When this guest's memory goes back in time: timeline.c. */
#ifndef TIDE_TIMELINE_H
#define TIDE_TIMELINE_H

#include <linux/types.h>

int tide_timeline_init(void (*end_sessions)(void));
void tide_timeline_exit(void);
bool tide_timeline_held(void);

#endif /* TIDE_TIMELINE_H */
