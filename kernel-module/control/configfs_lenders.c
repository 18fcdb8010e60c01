// SPDX-License-Identifier: GPL-2.0-only
/* configfs: lenders/NAME, one directory for each guest that this one borrows from. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>

#include "base/identity.h"
#include "base/limits.h"
#include "borrower/borrowing.h"
#include "borrower/breaker.h"
#include "borrower/disk_latency.h"
#include "borrower/fetch.h"
#include "borrower/filter.h"
#include "borrower/lane.h"
#include "borrower/peer.h"
#include "control/configfs_lenders.h"
#include "control/parse.h"
#include "control/show.h"
#include "pagecache/hooks.h"
#include "pagecache/inflight.h"

struct tide_lender_item {
	struct config_item item;
	struct tide_lender *lender;
};

static struct tide_lender *to_lender(struct config_item *item)
{
	return container_of(item, struct tide_lender_item, item)->lender;
}

/* Runs a change of configuration; without @live only while disabled. */
#define TIDE_LENDER_STORE(attr, live, change)				\
static ssize_t tide_lender_##attr##_store(struct config_item *item,	\
					  const char *page, size_t count) \
{									\
	struct tide_lender *lender = to_lender(item);			\
	char who[TIDE_WHO_SIZE];					\
	int err;							\
									\
	tide_who(who, sizeof(who), "lenders", lender->name);		\
	mutex_lock(&tide_control_mutex);				\
	if (!(live) && lender->state != TIDE_LENDER_DISABLED)		\
		err = tide_refuse(-EBUSY, who, #attr, "cannot change while enabled"); \
	else								\
		err = (change);						\
	mutex_unlock(&tide_control_mutex);				\
	return err ?: count;						\
}

static int tide_lender_set_address(struct tide_lender *lender, const char *who,
				   const char *page, size_t count)
{
	struct sockaddr_storage address;
	int err = tide_parse_address(who, page, count, &address);

	if (!err)
		tide_lender_move(lender, &address, lender->config.port);
	return err;
}

TIDE_LENDER_STORE(address, true, tide_lender_set_address(lender, who, page, count))

static ssize_t tide_lender_address_show(struct config_item *item, char *page)
{
	const struct tide_lender_config *config = &to_lender(item)->config;
	ssize_t size;

	mutex_lock(&tide_control_mutex);
	if (config->address.ss_family)
		size = sysfs_emit(page, "%pISc\n", &config->address);
	else
		size = sysfs_emit(page, "\n");
	mutex_unlock(&tide_control_mutex);
	return size;
}

static int tide_lender_set_port(struct tide_lender *lender, const char *who,
				const char *page)
{
	u16 port;
	int err = tide_parse_port(who, page, &port);

	if (!err)
		tide_lender_move(lender, &lender->config.address, port);
	return err;
}

TIDE_LENDER_STORE(port, true, tide_lender_set_port(lender, who, page))

static ssize_t tide_lender_port_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", to_lender(item)->config.port);
}

#define TIDE_TAKEN	"is that of another enabled lender"

static int tide_lender_set_identity(struct tide_lender *lender, const char *who,
				    const char *page, size_t count)
{
	struct tide_identity identity;
	int err = tide_parse_identity(who, page, count, &identity);

	if (err)
		return err;
	err = tide_lender_identify(lender, &identity);
	return err ? tide_refuse(err, who, "identity", TIDE_TAKEN) : 0;
}

TIDE_LENDER_STORE(identity, true, tide_lender_set_identity(lender, who, page, count))

static ssize_t tide_lender_identity_show(struct config_item *item, char *page)
{
	const struct tide_lender_config *config = &to_lender(item)->config;
	ssize_t size;

	mutex_lock(&tide_control_mutex);
	size = tide_show_identity(&config->identity, config->identity_set, page);
	mutex_unlock(&tide_control_mutex);
	return size;
}

static const char * const tide_strategies[] = {
	[TIDE_NON_INCLUSIVE] = "NonInclusive",
	[TIDE_EXCLUSIVE] = "Exclusive",
};

TIDE_LENDER_STORE(strategy, true,
		  tide_parse_name(who, "strategy", page, tide_strategies,
				  ARRAY_SIZE(tide_strategies), &lender->config.strategy))

static ssize_t tide_lender_strategy_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  tide_strategies[to_lender(item)->config.strategy]);
}

static const char * const tide_encryptions[] = {
	[TIDE_AES_GCM] = "AES-GCM",
	[TIDE_NO_ENCRYPTION] = "None",
};

TIDE_LENDER_STORE(encryption, false,
		  tide_parse_name(who, "encryption", page, tide_encryptions,
				  ARRAY_SIZE(tide_encryptions), &lender->config.encryption))

static ssize_t tide_lender_encryption_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  tide_encryptions[to_lender(item)->config.encryption]);
}

/* It holds for what is under way, too, unless its pages are arriving already. */
static int tide_lender_set_deadline(struct tide_lender *lender, const char *who,
				    const char *page)
{
	int err = tide_parse_deadline(who, page, &lender->config.deadline_us);

	if (!err)
		tide_get_hasten(lender);
	return err;
}

TIDE_LENDER_STORE(deadline_us, true, tide_lender_set_deadline(lender, who, page))

static ssize_t tide_lender_deadline_us_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", to_lender(item)->config.deadline_us);
}

/* The lender is told of the change. */
static int tide_lender_set_size(struct tide_lender *lender, const char *who,
				const char *page)
{
	u64 bytes;
	int err = tide_parse_bytes(who, "size_bytes", page, TIDE_MIN_BYTES, &bytes);

	if (err)
		return err;
	WRITE_ONCE(lender->config.size_bytes, bytes);
	if (lender->state != TIDE_LENDER_DISABLED)
		tide_lender_resize(lender);
	return 0;
}

TIDE_LENDER_STORE(size_bytes, true, tide_lender_set_size(lender, who, page))

static ssize_t tide_lender_size_bytes_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%llu\n", to_lender(item)->config.size_bytes);
}

/* What the breaker goes by may change while enabled, too. */
#define TIDE_BREAKER_STORE(attr, parse)					\
static ssize_t tide_lender_##attr##_store(struct config_item *item,	\
					  const char *page, size_t count) \
{									\
	struct tide_lender *lender = to_lender(item);			\
	const struct tide_lender_config *config = &lender->config;	\
	struct {							\
		enum tide_breaker_mode breaker;				\
		struct tide_thresholds breaker_short, breaker_long;	\
	} new;								\
	char who[TIDE_WHO_SIZE];					\
	int err;							\
									\
	tide_who(who, sizeof(who), "lenders", lender->name);		\
	mutex_lock(&tide_control_mutex);				\
	new.breaker = config->breaker;					\
	new.breaker_short = config->breaker_short;			\
	new.breaker_long = config->breaker_long;			\
	err = (parse);							\
	if (!err)							\
		tide_breaker_set(lender, new.breaker, &new.breaker_short, \
				 &new.breaker_long);			\
	mutex_unlock(&tide_control_mutex);				\
	return err ?: count;						\
}

static const char * const tide_breaker_modes[] = {
	[TIDE_BREAKER_OFF] = "Off",
	[TIDE_BREAKER_THRESHOLDS] = "Thresholds",
	[TIDE_BREAKER_AUTOMATIC] = "Automatic",
};

TIDE_BREAKER_STORE(breaker, tide_parse_name(who, "breaker", page, tide_breaker_modes,
					    ARRAY_SIZE(tide_breaker_modes), &new.breaker))

static ssize_t tide_lender_breaker_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  tide_breaker_modes[to_lender(item)->config.breaker]);
}

TIDE_BREAKER_STORE(breaker_short, tide_parse_thresholds(who, "breaker_short", page,
							&new.breaker_short))
TIDE_BREAKER_STORE(breaker_long, tide_parse_thresholds(who, "breaker_long", page,
						       &new.breaker_long))

static int tide_show_thresholds(const struct tide_thresholds *t, char *page)
{
	return sysfs_emit(page, "%u %u\n", t->resume_us, t->stop_us);
}

static ssize_t tide_lender_breaker_short_show(struct config_item *item, char *page)
{
	return tide_show_thresholds(&to_lender(item)->config.breaker_short, page);
}

static ssize_t tide_lender_breaker_long_show(struct config_item *item, char *page)
{
	return tide_show_thresholds(&to_lender(item)->config.breaker_long, page);
}

static int tide_lender_set_filter(struct tide_lender *lender, const char *who,
				  const char *page)
{
	bool on;
	int err = tide_parse_bool(who, "sequential_filter", page, &on);

	if (!err)
		tide_filter_set(lender, on);
	return err;
}

TIDE_LENDER_STORE(sequential_filter, true, tide_lender_set_filter(lender, who, page))

static ssize_t tide_lender_sequential_filter_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", to_lender(item)->config.sequential_filter);
}

static int tide_lender_complete(const struct tide_lender *lender, const char *who)
{
	if (!lender->config.address.ss_family)
		return tide_refuse(-EINVAL, who, "address", "must be set before enabled");
	if (!lender->config.identity_set)
		return tide_refuse(-EINVAL, who, "identity", "must be set before enabled");
	if (!lender->config.size_bytes)
		return tide_refuse(-EINVAL, who, "size_bytes", "must be set before enabled");
	return 0;
}

/* The hooks see every change to a file before a page of it can be at the lender. */
static int tide_lender_on(struct tide_lender *lender)
{
	int err = tide_hooks_hold_for_peer();

	if (err)
		return err;
	if (!tide_borrows())
		tide_gate_begin();
	err = tide_lender_enable(lender);
	if (err)
		tide_hooks_release_from_peer();
	return err;
}

static void tide_lender_off(struct tide_lender *lender)
{
	tide_lender_disable(lender);
	tide_hooks_release_from_peer();
}

static int tide_lender_switch(struct tide_lender *lender, const char *who, bool on)
{
	bool is_on = lender->state != TIDE_LENDER_DISABLED;
	int err;

	if (on == is_on)
		return 0;
	if (!on) {
		tide_lender_off(lender);
		return 0;
	}
	err = tide_lender_complete(lender, who) ?: tide_lender_on(lender);
	if (err == -EEXIST)
		return tide_refuse(err, who, "identity", TIDE_TAKEN);
	if (err == -ENOSPC)
		return tide_refuse(err, who, "enabled", "at most %d lenders",
				   TIDE_MAX_LENDERS);
	return err;
}

static int tide_lender_set_enabled(struct tide_lender *lender, const char *who,
				   const char *page)
{
	bool on;

	return tide_parse_bool(who, "enabled", page, &on) ?:
	       tide_lender_switch(lender, who, on);
}

TIDE_LENDER_STORE(enabled, true, tide_lender_set_enabled(lender, who, page))

static ssize_t tide_lender_enabled_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n",
			  to_lender(item)->state != TIDE_LENDER_DISABLED);
}

static ssize_t tide_lender_state_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", tide_lender_state_name(to_lender(item)));
}

static ssize_t tide_lender_reason_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", tide_lender_reason(to_lender(item)));
}

static ssize_t tide_lender_stats_show(struct config_item *item, char *page)
{
	struct tide_lender *lender = to_lender(item);
	int len = tide_show_lender_stats(lender, page);
	struct tide_breaker_means means;

	len += sysfs_emit_at(page, len, "catalog_pages %lld\n",
			     (s64)atomic64_read(&lender->catalog_pages));
	len += sysfs_emit_at(page, len, "granted_bytes %llu\nlanes %u\n",
			     READ_ONCE(lender->granted_pages) << PAGE_SHIFT,
			     tide_lanes_open(lender));
	len += sysfs_emit_at(page, len, "ping_us %llu\nrtt_us_ewma %llu\n",
			     READ_ONCE(lender->ping_ns) / 1000,
			     READ_ONCE(lender->rtt_ns) / 1000);
	tide_breaker_means(lender, &means);
	len += sysfs_emit_at(page, len,
			     "breaker_open %d\nbreaker_open_small %d\nbreaker_open_large %d\n",
			     tide_breaker_open(&lender->breaker),
			     tide_breaker_stops(&lender->breaker, TIDE_SMALL),
			     tide_breaker_stops(&lender->breaker, TIDE_LARGE));
	len += sysfs_emit_at(page, len, "ping_us_short %llu\nping_us_long %llu\n",
			     means.short_ns / 1000, means.long_ns / 1000);
	len += sysfs_emit_at(page, len, "get_us_short %llu\nget_us_large %llu\n",
			     means.reads[TIDE_SMALL].get_ns / 1000,
			     means.reads[TIDE_LARGE].get_ns / 1000);
	return len;
}

static ssize_t tide_lender_latency_show(struct config_item *item, char *page)
{
	struct tide_lender *lender = to_lender(item);
	int len = tide_histogram_show(&lender->get_latency, "get", page, 0);

	len += tide_histogram_show(&lender->put_latency, "put", page, len);
	return len + tide_histogram_show(&lender->ping_latency, "ping", page, len);
}

CONFIGFS_ATTR(tide_lender_, address);
CONFIGFS_ATTR(tide_lender_, port);
CONFIGFS_ATTR(tide_lender_, identity);
CONFIGFS_ATTR(tide_lender_, size_bytes);
CONFIGFS_ATTR(tide_lender_, strategy);
CONFIGFS_ATTR(tide_lender_, deadline_us);
CONFIGFS_ATTR(tide_lender_, encryption);
CONFIGFS_ATTR(tide_lender_, breaker);
CONFIGFS_ATTR(tide_lender_, breaker_short);
CONFIGFS_ATTR(tide_lender_, breaker_long);
CONFIGFS_ATTR(tide_lender_, sequential_filter);
CONFIGFS_ATTR(tide_lender_, enabled);
CONFIGFS_ATTR_RO(tide_lender_, state);
CONFIGFS_ATTR_RO(tide_lender_, reason);
CONFIGFS_ATTR_RO(tide_lender_, stats);
CONFIGFS_ATTR_RO(tide_lender_, latency);

static struct configfs_attribute *tide_lender_attrs[] = {
	&tide_lender_attr_address,
	&tide_lender_attr_port,
	&tide_lender_attr_identity,
	&tide_lender_attr_size_bytes,
	&tide_lender_attr_strategy,
	&tide_lender_attr_deadline_us,
	&tide_lender_attr_encryption,
	&tide_lender_attr_breaker,
	&tide_lender_attr_breaker_short,
	&tide_lender_attr_breaker_long,
	&tide_lender_attr_sequential_filter,
	&tide_lender_attr_enabled,
	&tide_lender_attr_state,
	&tide_lender_attr_reason,
	&tide_lender_attr_stats,
	&tide_lender_attr_latency,
	NULL,
};

/* rmdir has made sure that nobody has an attribute open. */
static void tide_lender_release(struct config_item *item)
{
	struct tide_lender_item *li = container_of(item, struct tide_lender_item, item);

	tide_lender_destroy(li->lender);
	kfree(li);
}

static struct configfs_item_operations tide_lender_ops = {
	.release = tide_lender_release,
};

static const struct config_item_type tide_lender_type = {
	.ct_item_ops = &tide_lender_ops,
	.ct_attrs = tide_lender_attrs,
	.ct_owner = THIS_MODULE,
};

static struct config_item *tide_lenders_make(struct config_group *group,
					     const char *name)
{
	struct tide_lender_item *li;

	if (!tide_name_ok(name))
		return ERR_PTR(tide_refuse(-EINVAL, "lenders", "mkdir",
					   "a name has 1 to 63 of A-Z a-z 0-9 . _ -"));
	li = kzalloc(sizeof(*li), GFP_KERNEL);
	if (!li)
		return ERR_PTR(-ENOMEM);
	li->lender = tide_lender_create(name);
	if (IS_ERR(li->lender)) {
		void *err = li->lender;

		kfree(li);
		return err;
	}
	config_item_init_type_name(&li->item, name, &tide_lender_type);
	return &li->item;
}

static void tide_lenders_drop(struct config_group *group, struct config_item *item)
{
	mutex_lock(&tide_control_mutex);
	tide_lender_switch(to_lender(item), "", false);
	mutex_unlock(&tide_control_mutex);
	config_item_put(item);
}

static struct configfs_group_operations tide_lenders_ops = {
	.make_item = tide_lenders_make,
	.drop_item = tide_lenders_drop,
};

const struct config_item_type tide_lenders_type = {
	.ct_group_ops = &tide_lenders_ops,
	.ct_owner = THIS_MODULE,
};
