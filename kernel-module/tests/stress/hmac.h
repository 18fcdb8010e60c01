/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMAC_H
#define HMAC_H

#include <stddef.h>
#include <stdint.h>

#define HMAC_BYTES	32	/* of a key, and of a code */

struct hmac_part {
	const void *data;
	size_t length;
};

/* HMAC-SHA256 of the parts, one after the other. */
void hmac(const uint8_t key[HMAC_BYTES], const struct hmac_part *parts, int count, uint8_t mac[HMAC_BYTES]);

#endif
