/* SPDX-License-Identifier: GPL-2.0-only */
/* A pool of values, and who may use how much of it: pool.c. */
#ifndef TIDE_APP_POOL_H
#define TIDE_APP_POOL_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "appmem/account.h"
#include "appmem/front.h"
#include "uapi/tidepool.h"

struct seq_file;
struct tide_object;
struct tide_shared;
struct tide_spill;
struct tide_times;

/**
 * struct tide_app_pool - values by key
 * @list: among those with a name
 * @every: among all
 * @kref: the name's, and that of each who has it open
 * @name: or ""
 * @owner: who made it
 * @group: his, then
 * @mode: who else may use it, as a file's
 * @held: what @owner has had since he made it, whatever @mode says: MAY_READ, MAY_WRITE
 * @account: how many bytes it holds, and may hold
 * @object: its pages
 * @spill: of a kept pool: the file that has them, too; else NULL
 * @front: of another pool: its pages that are here, too, see front.c
 * @times: how long its calls have taken
 * @writing: of a kept pool: who has it writes a full page of small values to @spill
 * @lock: guards all that follows
 * @values: by key
 * @next_index: of pages; none is used twice
 * @shared: pages of small values that lenders have, the oldest first
 * @open: the page that small values are added to, or NULL
 * @filled: bytes that were ever added to pages in @shared
 * @live: of those, of values that are still there
 * @movers: who make such pages empty
 * @swept: the key of the value that was looked at last, @swept_size bytes
 * @stats: what was counted
 */
struct tide_app_pool {
	struct list_head list;
	struct list_head every;
	struct kref kref;
	char name[TIDEPOOL_NAME_MAX];
	kuid_t owner;
	kgid_t group;
	umode_t mode;
	unsigned int held;
	struct tide_account account;
	struct tide_object *object;
	struct tide_spill *spill;
	struct tide_front front;
	struct tide_times *times;
	struct mutex writing;	/* of a full page, to @spill */

	struct mutex lock;	/* all that follows */
	struct rb_root values;
	u64 next_index;
	struct list_head shared;
	struct tide_shared *open;
	u64 filled, live;
	unsigned int movers;
	u8 swept[TIDEPOOL_KEY_MAX];
	unsigned int swept_size;
	struct tidepool_stats stats;
};

struct tide_app_pool *tide_app_pool_open(const struct tidepool_open *how, unsigned int access);
void tide_app_pool_close(struct tide_app_pool *pool);
int tide_app_pool_unlink(struct tide_app_pool *pool);
void tide_app_pool_stats(struct tide_app_pool *pool, struct tidepool_stats *stats);
void tide_app_pools_show(struct seq_file *seq);
void tide_app_pools_exit(void);

#endif /* TIDE_APP_POOL_H */
