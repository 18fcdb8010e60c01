/* SPDX-License-Identifier: GPL-2.0 */
/* What missratio.c uses of the kernel's header. */
#define div64_u64(dividend, divisor) ((dividend) / (divisor))
