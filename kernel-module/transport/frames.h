/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames under the keys of their connection: frames.c. */
#ifndef TIDE_FRAMES_H
#define TIDE_FRAMES_H

#include "base/noise.h"
#include "uapi/wire.h"

struct tide_sealer;

/* Both directions of one connection. */
struct tide_sealers {
	struct tide_sealer *send, *receive;
};

int tide_sealers_create(struct tide_sealers *sealers, const struct tide_noise_keys *keys,
			bool initiator, bool clear);
void tide_sealers_free(struct tide_sealers *sealers);
int tide_frame_seal(struct tide_sealer *sealer, const struct tide_frame *frame,
		    void *metadata, size_t size);
int tide_frame_open(struct tide_sealer *sealer, const struct tide_frame *frame,
		    void *metadata, size_t size);

#endif /* TIDE_FRAMES_H */
