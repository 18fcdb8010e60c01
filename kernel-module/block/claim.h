/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose a disk is: claim.c. */
#ifndef TIDE_CLAIM_H
#define TIDE_CLAIM_H

struct dm_target;
struct tide_device;

char *tide_claim(struct dm_target *ti, struct tide_device *device);
void tide_unclaim(struct tide_device *device);

#endif /* TIDE_CLAIM_H */
