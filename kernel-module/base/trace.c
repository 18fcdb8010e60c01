// SPDX-License-Identifier: GPL-2.0-only
/*
 * The code of the tracepoints that trace.h declares.
 */
#define CREATE_TRACE_POINTS
#include "base/trace.h"
