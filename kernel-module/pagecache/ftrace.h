/* SPDX-License-Identifier: GPL-2.0-only */
/* Wrappers round what changes pages past the tracepoints: ftrace.c. */
#ifndef TIDE_FTRACE_H
#define TIDE_FTRACE_H

int tide_wrappers_install(void);
void tide_wrappers_remove(void);

#endif /* TIDE_FTRACE_H */
