// SPDX-License-Identifier: GPL-2.0-only
/* 6.4, "mm: vmscan: ignore non-LRU-based reclaim in memcg reclaim" */
#include <linux/sched.h>
#include <linux/swap.h>

void probe(unsigned long pages)
{
#ifdef TIDE_NEWER
	mm_account_reclaimed_pages(pages);
#else
	current->reclaim_state->reclaimed_slab += pages;
#endif
}
