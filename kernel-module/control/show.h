/* SPDX-License-Identifier: GPL-2.0-only */
/* Statistics as text: show.c. */
#ifndef TIDE_SHOW_H
#define TIDE_SHOW_H

struct tide_borrower_stats;
struct tide_histogram;
struct tide_lender;

int tide_histogram_show(const struct tide_histogram *h, const char *name,
			char *page, int at);

int tide_show_stats(char *page);
int tide_show_lender_stats(const struct tide_lender *lender, char *page);
int tide_show_borrower_stats(const struct tide_borrower_stats *stats, char *page);

#endif /* TIDE_SHOW_H */
