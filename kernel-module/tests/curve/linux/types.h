/* SPDX-License-Identifier: GPL-2.0 */
/* What missratio.c uses of the kernel's header. */
#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
