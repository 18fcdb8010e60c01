/* SPDX-License-Identifier: GPL-2.0-only */
/* Statistics, and what was configured, as text: show.c. */
#ifndef TIDE_SHOW_H
#define TIDE_SHOW_H

#include <linux/sysfs.h>
#include <linux/types.h>

#include "base/identity.h"

struct tide_borrower_stats;
struct tide_lender;

/* An identity, or an empty line while there is none. */
static inline ssize_t tide_show_identity(const struct tide_identity *identity, bool set, char *page)
{
	char text[TIDE_IDENTITY_TEXT] = "";

	if (set)
		tide_identity_print(identity, text);
	return sysfs_emit(page, "%s\n", text);
}

int tide_show_stats(char *page);
int tide_show_lender_stats(const struct tide_lender *lender, char *page);
int tide_show_borrower_stats(const struct tide_borrower_stats *stats, char *page);

#endif /* TIDE_SHOW_H */
