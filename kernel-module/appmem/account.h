/* SPDX-License-Identifier: GPL-2.0-only */
/* How many bytes a pool of values holds, and may hold: account.c. */
#ifndef TIDE_APP_ACCOUNT_H
#define TIDE_APP_ACCOUNT_H

#include <linux/mm.h>
#include <linux/types.h>
#include <linux/uidgid.h>

struct tide_app_user;

/**
 * struct tide_cost - what something counts for
 * @here: bytes of the guest's own memory, in which it is remembered
 * @pages: whole pages that are elsewhere
 */
struct tide_cost {
	size_t here;
	unsigned int pages;
};

/**
 * struct tide_account - of one pool
 * @user: who made it; his pools count together
 * @quota: bytes that it may hold, here and elsewhere
 * @bytes: that it holds
 * @catalog: of these, what its pages were charged for in the catalog
 * @beyond: and what that takes beside, as they are far apart
 */
struct tide_account {
	struct tide_app_user *user;
	u64 quota, bytes, catalog, beyond;
};

/*
 * What the catalog takes for pages one after the other, beside 8 bytes for each: where
 * those around them are gone, a leaf and a good part of the node above.
 */
#define TIDE_RUN_BYTES	192

/* What pages one after the other count for in the catalog. */
static inline size_t tide_cost_catalog(unsigned int pages)
{
	return pages ? TIDE_RUN_BYTES + pages * sizeof(u64) : 0;
}

/* What they count for in all, and @bytes in which it is remembered what they are. */
static inline struct tide_cost tide_cost(size_t bytes, unsigned int pages)
{
	return (struct tide_cost) {
		.here = bytes + tide_cost_catalog(pages),
		.pages = pages,
	};
}

int tide_account_open(struct tide_account *account, kuid_t uid, u64 quota);
void tide_account_close(struct tide_account *account);
int tide_account_charge(struct tide_account *account, struct tide_cost cost, u64 catalog);
int tide_account_charge_beyond(struct tide_account *account, struct tide_cost cost);
void tide_account_uncharge(struct tide_account *account, struct tide_cost cost);
u64 tide_account_all(void);
void tide_account_say(struct tide_account *account, u64 *quota, u64 *bytes);

#endif /* TIDE_APP_ACCOUNT_H */
