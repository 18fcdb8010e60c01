/* SPDX-License-Identifier: GPL-2.0-only */
/* Under which key the pages are that a lender has: epochs.c. */
#ifndef TIDE_EPOCHS_H
#define TIDE_EPOCHS_H

#include <linux/types.h>

struct tide_cipher;
struct tide_lender;

/* As many connections may be lost before a page is. */
#define TIDE_EPOCHS	128

/**
 * struct tide_epochs - the keys of the pages that a lender has, the oldest first
 * @used: how many there are
 * @epoch: @first and all versions up to the next one's are under the key of @cipher;
 *	@puts is how many batches there had been before
 *
 * They change only between connections; then each lane's receiving thread reads them.
 */
struct tide_epochs {
	unsigned int used;
	struct tide_epoch {
		u64 first, puts;
		struct tide_cipher *cipher;
	} epoch[TIDE_EPOCHS];
};

int tide_epoch_begin(struct tide_lender *lender);
void tide_epochs_end(struct tide_lender *lender);
struct tide_cipher *tide_epoch_cipher(const struct tide_epochs *epochs, u64 version);

#endif /* TIDE_EPOCHS_H */
