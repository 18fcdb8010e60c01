// SPDX-License-Identifier: GPL-2.0-only
/*
 * A session outlives its connections, but with each new one an epoch begins: what is
 * put from then on is under a fresh key (crypto.c), and what is there already stays
 * under its own. So no version is ever used twice under one key, even where this
 * guest's memory has gone back in time and nobody has noticed. Which epoch a page is
 * of, its version says.
 */
#include <linux/string.h>

#include "base/broken.h"
#include "base/crypto.h"
#include "borrower/catalog_ages.h"
#include "borrower/epochs.h"
#include "borrower/peer.h"
#include "borrower/versions.h"

/* With few the tests see that a page goes with its epoch. */
static unsigned int tide_epochs_most(void)
{
	return tide_broken(EPOCHS) ? 4 : TIDE_EPOCHS;
}

static void tide_epoch_drop_oldest(struct tide_epochs *epochs)
{
	tide_cipher_free(epochs->epoch[0].cipher);
	epochs->used--;
	memmove(&epochs->epoch[0], &epochs->epoch[1],
		epochs->used * sizeof(epochs->epoch[0]));
}

/* Those of which the lender has nothing any more; and one if there are too many. */
static void tide_epochs_thin(struct tide_lender *lender)
{
	struct tide_epochs *epochs = &lender->epochs;

	while (epochs->used > 1 && !tide_ages_before(lender, epochs->epoch[1].first))
		tide_epoch_drop_oldest(epochs);
	if (epochs->used < tide_epochs_most())
		return;
	tide_ages_forget_before(lender, epochs->epoch[1].first);
	tide_epoch_drop_oldest(epochs);
}

/* The epoch that begins; one in which nothing was put begins again. */
static struct tide_epoch *tide_epoch_make(struct tide_lender *lender)
{
	struct tide_epochs *epochs = &lender->epochs;
	struct tide_epoch *epoch;

	if (epochs->used) {
		epoch = &epochs->epoch[epochs->used - 1];
		if (epoch->puts == lender->put_id)
			return epoch;
	}
	tide_epochs_thin(lender);
	epoch = &epochs->epoch[epochs->used];
	epoch->cipher = tide_cipher_create(lender->lanes);
	if (!epoch->cipher)
		return NULL;
	epochs->used++;
	return epoch;
}

/**
 * tide_epoch_begin() - what is put from now on is under a fresh key
 * @lender: just connected; nothing is being put
 *
 * Context: the lender's main thread, and there is no other lane.
 * Return: 0 or a negative errno.
 */
int tide_epoch_begin(struct tide_lender *lender)
{
	u64 first = tide_next_version();
	struct tide_epoch *epoch;

	tide_ages_begin(lender, first);
	if (lender->config.encryption != TIDE_AES_GCM)
		return 0;
	epoch = tide_epoch_make(lender);
	if (!epoch)
		return -ENOMEM;
	epoch->first = first;
	epoch->puts = lender->put_id;
	return tide_cipher_renew(lender->put_cipher, epoch->cipher, lender->contribution);
}

/**
 * tide_epochs_end() - the lender has nothing any more
 * @lender: the lender
 *
 * Context: the lender's main thread while there is no other lane, or when there is none.
 */
void tide_epochs_end(struct tide_lender *lender)
{
	while (lender->epochs.used)
		tide_epoch_drop_oldest(&lender->epochs);
}

/**
 * tide_epoch_cipher() - what opens a page
 * @epochs: of the lender from whom it came
 * @version: of the page
 *
 * Context: a lane's receiving thread.
 * Return: the cipher, or NULL when no page of this version can be of that lender.
 */
struct tide_cipher *tide_epoch_cipher(const struct tide_epochs *epochs, u64 version)
{
	unsigned int i = epochs->used;

	while (i--)
		if (epochs->epoch[i].first <= version)
			return epochs->epoch[i].cipher;
	return NULL;
}
