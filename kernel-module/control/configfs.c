// SPDX-License-Identifier: GPL-2.0-only
/*
 * Control through configfs, as ABI.md describes it:
 *
 *	tidepool/{version,identity,stats,latency,port,lend_bytes,reserve_bytes,
 *		  linger_s,hold,ghost,ghost_curve,verify_one_in}
 *	tidepool/lenders/NAME/		configfs_lenders.c
 *	tidepool/borrowers/NAME/	configfs_borrowers.c
 *
 * Every value is checked here, and an error is explained in the kernel log
 * with the attribute's name (parse.c). What may not change while a peer is enabled gives
 * -EBUSY. One mutex (parse.c) orders all writers.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "base/identity.h"
#include "borrower/disk_latency.h"
#include "borrower/ghost.h"
#include "control/configfs.h"
#include "control/configfs_borrowers.h"
#include "control/configfs_lenders.h"
#include "control/parse.h"
#include "control/show.h"
#include "lender/lending.h"
#include "lender/listen.h"
#include "lender/sessions.h"
#include "lender/shelf.h"
#include "pagecache/hooks.h"
#include "pagecache/verify.h"

static ssize_t tide_root_version_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", THIS_MODULE->version);
}

static ssize_t tide_root_identity_show(struct config_item *item, char *page)
{
	struct tide_identity own;

	tide_identity_own(&own);
	return tide_show_identity(&own, true, page);
}

static ssize_t tide_root_stats_show(struct config_item *item, char *page)
{
	return tide_show_stats(page);
}

static ssize_t tide_root_latency_show(struct config_item *item, char *page)
{
	return tide_histogram_show(&tide_disk_latency, "disk", page, 0);
}

static ssize_t tide_root_port_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", tide_port);
}

static ssize_t tide_root_port_store(struct config_item *item, const char *page,
				    size_t count)
{
	int err;

	mutex_lock(&tide_control_mutex);
	if (tide_listening())
		err = tide_refuse(-EBUSY, "tidepool", "port",
				  "cannot change while a borrower is enabled");
	else
		err = tide_parse_port("tidepool", page, &tide_port);
	mutex_unlock(&tide_control_mutex);
	return err ?: count;
}

static ssize_t tide_root_lend_bytes_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%llu\n", READ_ONCE(tide_lend_bytes));
}

static ssize_t tide_root_lend_bytes_store(struct config_item *item,
					  const char *page, size_t count)
{
	u64 bytes;
	int err = tide_parse_bytes("tidepool", "lend_bytes", page, 0, &bytes);

	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	WRITE_ONCE(tide_lend_bytes, bytes);
	tide_lending_shrink();
	mutex_unlock(&tide_control_mutex);
	return count;
}

static ssize_t tide_root_reserve_bytes_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%llu\n", READ_ONCE(tide_reserve_bytes));
}

static ssize_t tide_root_reserve_bytes_store(struct config_item *item,
					     const char *page, size_t count)
{
	u64 bytes;
	int err = tide_parse_bytes("tidepool", "reserve_bytes", page, 0, &bytes);

	if (err)
		return err;
	WRITE_ONCE(tide_reserve_bytes, bytes);
	return count;
}

static ssize_t tide_root_linger_s_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(tide_linger_s));
}

static ssize_t tide_root_linger_s_store(struct config_item *item, const char *page,
					size_t count)
{
	unsigned int seconds;

	if (kstrtouint(page, 0, &seconds) || seconds > TIDE_LINGER_MAX_S)
		return tide_refuse(-EINVAL, "tidepool", "linger_s",
				   "must be a number of seconds from 0 to %d",
				   TIDE_LINGER_MAX_S);
	mutex_lock(&tide_control_mutex);
	tide_linger_set(seconds);
	mutex_unlock(&tide_control_mutex);
	return count;
}

static ssize_t tide_root_hold_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", READ_ONCE(tide_lending_held));
}

static ssize_t tide_root_hold_store(struct config_item *item, const char *page,
				    size_t count)
{
	bool held;
	int err = tide_parse_bool("tidepool", "hold", page, &held);

	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	tide_lending_hold(held);
	mutex_unlock(&tide_control_mutex);
	return count;
}

static const char * const tide_ghost_modes[] = {
	[TIDE_GHOST_OFF] = "Off",
	[TIDE_GHOST_NON_INCLUSIVE] = "NonInclusive",
	[TIDE_GHOST_EXCLUSIVE] = "Exclusive",
};

static ssize_t tide_root_ghost_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", tide_ghost_modes[tide_ghost_mode()]);
}

static ssize_t tide_root_ghost_store(struct config_item *item, const char *page,
				     size_t count)
{
	enum tide_ghost_mode mode;
	int err = tide_parse_name("tidepool", "ghost", page, tide_ghost_modes,
				  ARRAY_SIZE(tide_ghost_modes), &mode);

	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	err = tide_ghost_switch(mode);
	mutex_unlock(&tide_control_mutex);
	return err ?: count;
}

static ssize_t tide_root_ghost_curve_show(struct config_item *item, char *page)
{
	return tide_ghost_show(page);
}

static ssize_t tide_root_verify_one_in_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", READ_ONCE(tide_verify_one_in));
}

static ssize_t tide_root_verify_one_in_store(struct config_item *item,
					     const char *page, size_t count)
{
	unsigned int n;

	if (kstrtouint(page, 0, &n))
		return tide_refuse(-EINVAL, "tidepool", "verify_one_in",
				   "must be a number from 0 to 4294967295");
	WRITE_ONCE(tide_verify_one_in, n);
	return count;
}

CONFIGFS_ATTR_RO(tide_root_, version);
CONFIGFS_ATTR_RO(tide_root_, identity);
CONFIGFS_ATTR_RO(tide_root_, stats);
CONFIGFS_ATTR_RO(tide_root_, latency);
CONFIGFS_ATTR(tide_root_, port);
CONFIGFS_ATTR(tide_root_, lend_bytes);
CONFIGFS_ATTR(tide_root_, reserve_bytes);
CONFIGFS_ATTR(tide_root_, linger_s);
CONFIGFS_ATTR(tide_root_, hold);
CONFIGFS_ATTR(tide_root_, ghost);
CONFIGFS_ATTR_RO(tide_root_, ghost_curve);
CONFIGFS_ATTR(tide_root_, verify_one_in);

static struct configfs_attribute *tide_root_attrs[] = {
	&tide_root_attr_version,
	&tide_root_attr_identity,
	&tide_root_attr_stats,
	&tide_root_attr_latency,
	&tide_root_attr_port,
	&tide_root_attr_lend_bytes,
	&tide_root_attr_reserve_bytes,
	&tide_root_attr_linger_s,
	&tide_root_attr_hold,
	&tide_root_attr_ghost,
	&tide_root_attr_ghost_curve,
	&tide_root_attr_verify_one_in,
	NULL,
};

static const struct config_item_type tide_root_type = {
	.ct_attrs = tide_root_attrs,
	.ct_owner = THIS_MODULE,
};

static struct configfs_subsystem tide_subsystem = {
	.su_group.cg_item = {
		.ci_namebuf = "tidepool",
		.ci_type = &tide_root_type,
	},
};

static struct config_group tide_lenders_group, tide_borrowers_group;

int tide_control_init(void)
{
	config_group_init(&tide_subsystem.su_group);
	mutex_init(&tide_subsystem.su_mutex);
	config_group_init_type_name(&tide_lenders_group, "lenders", &tide_lenders_type);
	config_group_init_type_name(&tide_borrowers_group, "borrowers",
				    &tide_borrowers_type);
	configfs_add_default_group(&tide_lenders_group, &tide_subsystem.su_group);
	configfs_add_default_group(&tide_borrowers_group, &tide_subsystem.su_group);
	return configfs_register_subsystem(&tide_subsystem);
}

void tide_control_exit(void)
{
	configfs_unregister_subsystem(&tide_subsystem);
	tide_ghost_switch(TIDE_GHOST_OFF);
}
