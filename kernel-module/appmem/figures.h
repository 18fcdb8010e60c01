/* SPDX-License-Identifier: GPL-2.0-only */
/* What all pools of values hold and have counted together: figures.c. */
#ifndef TIDE_APP_FIGURES_H
#define TIDE_APP_FIGURES_H

struct tide_app_pool;

void tide_figures_add(struct tide_app_pool *pool);
void tide_figures_remove(struct tide_app_pool *pool);
int tide_figures_show(char *page);
int tide_figures_show_times(char *page);

#endif /* TIDE_APP_FIGURES_H */
