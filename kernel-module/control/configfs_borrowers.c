// SPDX-License-Identifier: GPL-2.0-only
/* configfs: borrowers/NAME, one directory for each guest that this one lends to. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>

#include "base/identity.h"
#include "base/limits.h"
#include "control/configfs_borrowers.h"
#include "control/parse.h"
#include "control/show.h"
#include "lender/borrowers.h"
#include "lender/lending.h"
#include "lender/listen.h"
#include "pagecache/hooks.h"

struct tide_borrower_item {
	struct config_item item;
	struct tide_borrower *borrower;
};

static struct tide_borrower *to_borrower(struct config_item *item)
{
	return container_of(item, struct tide_borrower_item, item)->borrower;
}

#define TIDE_TAKEN	"is that of another enabled borrower"

static ssize_t tide_borrower_identity_store(struct config_item *item,
					    const char *page, size_t count)
{
	struct tide_borrower *borrower = to_borrower(item);
	struct tide_identity identity;
	char who[TIDE_WHO_SIZE];
	int err;

	tide_who(who, sizeof(who), "borrowers", borrower->name);
	err = tide_parse_identity(who, page, count, &identity);
	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	err = tide_borrower_identify(borrower, &identity);
	mutex_unlock(&tide_control_mutex);
	return err ? tide_refuse(err, who, "identity", TIDE_TAKEN) : count;
}

static ssize_t tide_borrower_identity_show(struct config_item *item, char *page)
{
	const struct tide_borrower *borrower = to_borrower(item);
	ssize_t size;

	mutex_lock(&tide_control_mutex);
	size = tide_show_identity(&borrower->identity, borrower->identity_set, page);
	mutex_unlock(&tide_control_mutex);
	return size;
}

static ssize_t tide_borrower_quota_bytes_store(struct config_item *item,
					       const char *page, size_t count)
{
	struct tide_borrower *borrower = to_borrower(item);
	char who[TIDE_WHO_SIZE];
	u64 bytes;
	int err;

	tide_who(who, sizeof(who), "borrowers", borrower->name);
	err = tide_parse_bytes(who, "quota_bytes", page, TIDE_MIN_BYTES, &bytes);
	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	WRITE_ONCE(borrower->quota_bytes, bytes);
	tide_borrower_requota(borrower);
	mutex_unlock(&tide_control_mutex);
	return count;
}

static ssize_t tide_borrower_quota_bytes_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%llu\n", to_borrower(item)->quota_bytes);
}

/* Its pages are known by the hooks when they go, so these are there first. */
static int tide_borrower_on(struct tide_borrower *borrower)
{
	int err = tide_hooks_hold_for_peer();

	if (err)
		return err;
	err = tide_borrower_enable(borrower);
	if (err)
		tide_hooks_release_from_peer();
	return err;
}

static void tide_borrower_off(struct tide_borrower *borrower)
{
	tide_borrower_disable(borrower);
	tide_hooks_release_from_peer();
}

static int tide_borrower_switch(struct tide_borrower *borrower, const char *who, bool on)
{
	int err;

	if (on == borrower->enabled)
		return 0;
	if (!on) {
		tide_borrower_off(borrower);
		return 0;
	}
	if (!borrower->identity_set)
		return tide_refuse(-EINVAL, who, "identity", "must be set before enabled");
	if (!borrower->quota_bytes)
		return tide_refuse(-EINVAL, who, "quota_bytes", "must be set before enabled");
	err = tide_borrower_on(borrower);
	if (err == -EEXIST)
		return tide_refuse(err, who, "identity", TIDE_TAKEN);
	if (err == -ENOSPC)
		return tide_refuse(err, who, "enabled", "at most %d borrowers",
				   TIDE_MAX_BORROWERS);
	return err;
}

static ssize_t tide_borrower_enabled_store(struct config_item *item,
					   const char *page, size_t count)
{
	struct tide_borrower *borrower = to_borrower(item);
	char who[TIDE_WHO_SIZE];
	bool on;
	int err;

	tide_who(who, sizeof(who), "borrowers", borrower->name);
	err = tide_parse_bool(who, "enabled", page, &on);
	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	err = tide_borrower_switch(borrower, who, on);
	mutex_unlock(&tide_control_mutex);
	return err ?: count;
}

static ssize_t tide_borrower_enabled_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", to_borrower(item)->enabled);
}

static ssize_t tide_borrower_state_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", tide_borrower_state_name(to_borrower(item)));
}

static ssize_t tide_borrower_stats_show(struct config_item *item, char *page)
{
	struct tide_borrower *borrower = to_borrower(item);
	int len = tide_show_borrower_stats(&borrower->stats, page);

	len += sysfs_emit_at(page, len, "lent_pages %llu\n",
			     tide_borrower_lent_pages(borrower));
	len += sysfs_emit_at(page, len, "granted_bytes %llu\n",
			     READ_ONCE(borrower->granted_bytes));
	len += sysfs_emit_at(page, len, "connections %u\n",
			     tide_borrower_connections(borrower));
	return len;
}

CONFIGFS_ATTR(tide_borrower_, identity);
CONFIGFS_ATTR(tide_borrower_, quota_bytes);
CONFIGFS_ATTR(tide_borrower_, enabled);
CONFIGFS_ATTR_RO(tide_borrower_, state);
CONFIGFS_ATTR_RO(tide_borrower_, stats);

static struct configfs_attribute *tide_borrower_attrs[] = {
	&tide_borrower_attr_identity,
	&tide_borrower_attr_quota_bytes,
	&tide_borrower_attr_enabled,
	&tide_borrower_attr_state,
	&tide_borrower_attr_stats,
	NULL,
};

static void tide_borrower_release(struct config_item *item)
{
	struct tide_borrower_item *bi = container_of(item, struct tide_borrower_item, item);

	tide_borrower_destroy(bi->borrower);
	kfree(bi);
}

static struct configfs_item_operations tide_borrower_ops = {
	.release = tide_borrower_release,
};

static const struct config_item_type tide_borrower_type = {
	.ct_item_ops = &tide_borrower_ops,
	.ct_attrs = tide_borrower_attrs,
	.ct_owner = THIS_MODULE,
};

static struct config_item *tide_borrowers_make(struct config_group *group,
					       const char *name)
{
	struct tide_borrower_item *bi;

	if (!tide_name_ok(name))
		return ERR_PTR(tide_refuse(-EINVAL, "borrowers", "mkdir",
					   "a name has 1 to 63 of A-Z a-z 0-9 . _ -"));
	bi = kzalloc(sizeof(*bi), GFP_KERNEL);
	if (!bi)
		return ERR_PTR(-ENOMEM);
	bi->borrower = tide_borrower_create(name);
	if (IS_ERR(bi->borrower)) {
		void *err = bi->borrower;

		kfree(bi);
		return err;
	}
	config_item_init_type_name(&bi->item, name, &tide_borrower_type);
	return &bi->item;
}

static void tide_borrowers_drop(struct config_group *group, struct config_item *item)
{
	mutex_lock(&tide_control_mutex);
	tide_borrower_switch(to_borrower(item), "", false);
	mutex_unlock(&tide_control_mutex);
	config_item_put(item);
}

static struct configfs_group_operations tide_borrowers_ops = {
	.make_item = tide_borrowers_make,
	.drop_item = tide_borrowers_drop,
};

const struct config_item_type tide_borrowers_type = {
	.ct_group_ops = &tide_borrowers_ops,
	.ct_owner = THIS_MODULE,
};
