// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a pool holds, and what is remembered of it, counts towards its own quota, that of
 * the user who made it, and that of the guest. What is remembered is memory of the guest's,
 * which nobody can take back: it has a bound of its own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "appmem/account.h"

static unsigned long size_bytes = SZ_1G;
module_param(size_bytes, ulong, 0644);
MODULE_PARM_DESC(size_bytes, "bytes that the values of all programs may take, in lenders' memory and here (1 GiB)");

static unsigned long user_bytes;
module_param(user_bytes, ulong, 0644);
MODULE_PARM_DESC(user_bytes, "bytes of them for each user (0, the default: all)");

static unsigned long remember_bytes;
module_param(remember_bytes, ulong, 0644);
MODULE_PARM_DESC(remember_bytes, "bytes of them that may be memory of this machine's, in which values are remembered (0, the default: an eighth of it)");

#define TIDE_REMEMBER_PART	8	/* of this machine's memory */
#define TIDE_USER_POOLS	4096	/* a name is looked for among all of them */
#define TIDE_CATALOG_SPARE	SZ_2K	/* to a pool's first page: an empty one counts for it */

/* Those who have pools. */
struct tide_app_user {
	struct list_head list;
	kuid_t uid;
	unsigned int pools;
	u64 bytes;
};

static LIST_HEAD(tide_app_users);
static u64 tide_app_bytes, tide_app_here;
static DEFINE_SPINLOCK(tide_app_bytes_lock);	/* all of this, and the accounts */

static u64 tide_app_user_limit(void)
{
	return READ_ONCE(user_bytes) ?: ULONG_MAX;
}

static u64 tide_app_remember_limit(void)
{
	return READ_ONCE(remember_bytes) ?:
	       (u64)totalram_pages() * PAGE_SIZE / TIDE_REMEMBER_PART;
}

/* Under the lock. */
static struct tide_app_user *tide_app_user_find(kuid_t uid)
{
	struct tide_app_user *user;

	list_for_each_entry(user, &tide_app_users, list)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * tide_account_open() - a pool is made
 * @account: its account
 * @uid: by whom
 * @quota: bytes that it may hold
 *
 * Context: process.
 * Return: 0, -EDQUOT when he has too many, or -ENOMEM.
 */
int tide_account_open(struct tide_account *account, kuid_t uid, u64 quota)
{
	struct tide_app_user *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT), *user;
	bool full;

	if (!fresh)
		return -ENOMEM;
	spin_lock(&tide_app_bytes_lock);
	user = tide_app_user_find(uid);
	if (!user) {
		user = fresh;
		fresh = NULL;
		user->uid = uid;
		list_add(&user->list, &tide_app_users);
	}
	full = user->pools >= TIDE_USER_POOLS;
	user->pools += !full;
	spin_unlock(&tide_app_bytes_lock);
	kfree(fresh);
	*account = (struct tide_account) { .user = user, .quota = quota };
	return full ? -EDQUOT : 0;
}

/* Under the lock. */
static void tide_account_add(struct tide_account *account, u64 here, u64 bytes)
{
	account->bytes += bytes;
	account->user->bytes += bytes;
	tide_app_bytes += bytes;
	tide_app_here += here;
}

/**
 * tide_account_close() - a pool is gone
 * @account: of which all is uncharged
 */
void tide_account_close(struct tide_account *account)
{
	struct tide_app_user *user = account->user;

	spin_lock(&tide_app_bytes_lock);
	tide_account_add(account, -account->beyond, -account->beyond);
	if (--user->pools)
		user = NULL;
	else
		list_del(&user->list);
	spin_unlock(&tide_app_bytes_lock);
	kfree(user);
}

static u64 tide_cost_bytes(struct tide_cost cost)
{
	return cost.here + (u64)cost.pages * PAGE_SIZE;
}

/* Under the lock: is there room for what is here and for all of it? */
static bool tide_account_fits(const struct tide_account *account, u64 here, u64 bytes)
{
	return account->bytes + bytes <= account->quota &&
	       account->user->bytes + bytes <= tide_app_user_limit() &&
	       tide_app_bytes + bytes <= READ_ONCE(size_bytes) &&
	       tide_app_here + here <= tide_app_remember_limit();
}

static void tide_account_add_cost(struct tide_account *account, struct tide_cost cost)
{
	tide_account_add(account, cost.here, tide_cost_bytes(cost));
	account->catalog += tide_cost_catalog(cost.pages);
}

/* What it takes that nobody was charged for. */
static u64 tide_account_beyond(const struct tide_account *account, u64 catalog)
{
	u64 charged = account->catalog + TIDE_CATALOG_SPARE;

	return catalog > charged ? catalog - charged : 0;
}

/**
 * tide_account_charge() - a pool is to hold more
 * @account: its account
 * @cost: how much more
 * @catalog: bytes that the catalog takes for its pages now: where these are far apart that
 *	is more than they were charged for, and counts from now on
 *
 * Context: process.
 * Return: 0, or -EDQUOT when its quota, its user's or the guest's does not allow that, or
 * the guest would have to remember too much.
 */
int tide_account_charge(struct tide_account *account, struct tide_cost cost, u64 catalog)
{
	u64 beyond, more;
	bool fits;

	spin_lock(&tide_app_bytes_lock);
	beyond = tide_account_beyond(account, catalog);
	more = beyond - account->beyond;	/* or less */
	fits = tide_account_fits(account, cost.here + more, tide_cost_bytes(cost) + more);
	if (fits) {
		tide_account_add(account, more, more);
		account->beyond = beyond;
		tide_account_add_cost(account, cost);
	}
	spin_unlock(&tide_app_bytes_lock);
	return fits ? 0 : -EDQUOT;
}

/**
 * tide_account_charge_beyond() - a pool is to hold more for a moment, so that it holds less then
 * @account: its account
 * @cost: how much more; there need not be room for it
 *
 * Context: process.
 * Return: 0, or -EDQUOT when it is beyond what it may hold already.
 */
int tide_account_charge_beyond(struct tide_account *account, struct tide_cost cost)
{
	bool fits;

	spin_lock(&tide_app_bytes_lock);
	fits = tide_account_fits(account, 0, 0);
	if (fits)
		tide_account_add_cost(account, cost);
	spin_unlock(&tide_app_bytes_lock);
	return fits ? 0 : -EDQUOT;
}

/**
 * tide_account_uncharge() - a pool holds less
 * @account: its account
 * @cost: how much less
 */
void tide_account_uncharge(struct tide_account *account, struct tide_cost cost)
{
	u64 bytes = tide_cost_bytes(cost);

	spin_lock(&tide_app_bytes_lock);
	account->bytes -= bytes;
	account->user->bytes -= bytes;
	tide_app_bytes -= bytes;
	tide_app_here -= cost.here;
	account->catalog -= tide_cost_catalog(cost.pages);
	spin_unlock(&tide_app_bytes_lock);
}

/**
 * tide_account_say() - how much that is
 * @account: the account
 * @quota: set to what the pool may hold, if others held nothing
 * @bytes: set to what it holds
 */
void tide_account_say(struct tide_account *account, u64 *quota, u64 *bytes)
{
	spin_lock(&tide_app_bytes_lock);
	*quota = min3(account->quota, tide_app_user_limit(), (u64)READ_ONCE(size_bytes));
	*bytes = account->bytes;
	spin_unlock(&tide_app_bytes_lock);
}

/**
 * tide_account_all() - how many bytes all pools hold
 */
u64 tide_account_all(void)
{
	u64 bytes;

	spin_lock(&tide_app_bytes_lock);
	bytes = tide_app_bytes;
	spin_unlock(&tide_app_bytes_lock);
	return bytes;
}
