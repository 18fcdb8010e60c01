// SPDX-License-Identifier: GPL-2.0-only
/*
 * Control through configfs, as ABI.md describes it:
 *
 *	tidepool/{version,stats,latency,port,lend_bytes,reserve_bytes,
 *		  ghost,ghost_curve}
 *	tidepool/lenders/NAME/		this guest borrows from NAME
 *	tidepool/borrowers/NAME/	this guest lends to NAME
 *
 * Every value is checked here, and an error is explained in the kernel log
 * with the attribute's name. What may not change while a peer is enabled gives
 * -EBUSY. One mutex orders all writers.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/configfs.h>
#include <linux/module.h>

#include "control.h"

static DEFINE_MUTEX(tide_control_mutex);

/* ------------------------------------------------------------------ */
/* lenders/NAME						       */
/* ------------------------------------------------------------------ */

struct tide_lender_item {
	struct config_item item;
	struct tide_lender *lender;
};

static struct tide_lender *to_lender(struct config_item *item)
{
	return container_of(item, struct tide_lender_item, item)->lender;
}

static void tide_who(char *who, size_t size, const char *kind, const char *name)
{
	snprintf(who, size, "%s/%s", kind, name);
}

#define TIDE_WHO_SIZE	(TIDE_NAME_MAX + 12)

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

TIDE_LENDER_STORE(address, false,
		  tide_parse_address(who, page, count, &lender->config.address))

static ssize_t tide_lender_address_show(struct config_item *item, char *page)
{
	struct tide_lender *lender = to_lender(item);

	if (!lender->config.address.ss_family)
		return sysfs_emit(page, "\n");
	return sysfs_emit(page, "%pISc\n", &lender->config.address);
}

TIDE_LENDER_STORE(port, false, tide_parse_port(who, page, &lender->config.port))

static ssize_t tide_lender_port_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", to_lender(item)->config.port);
}

static int tide_lender_set_key(struct tide_lender *lender, const char *who,
			       const char *page, size_t count)
{
	u8 key[TIDE_KEY_SIZE];
	int err = tide_parse_key(who, page, count, key);

	if (!err)
		tide_lender_rekey(lender, key);
	memzero_explicit(key, sizeof(key));
	return err;
}

/* The next handshake uses it; a session goes on. */
TIDE_LENDER_STORE(key, true, tide_lender_set_key(lender, who, page, count))

TIDE_LENDER_STORE(strategy, true,
		  tide_parse_strategy(who, page, &lender->config.strategy))

static ssize_t tide_lender_strategy_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  to_lender(item)->config.strategy == TIDE_EXCLUSIVE ?
			  "Exclusive" : "NonInclusive");
}

TIDE_LENDER_STORE(encryption, false,
		  tide_parse_encryption(who, page, &lender->config.encryption))

static ssize_t tide_lender_encryption_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  to_lender(item)->config.encryption == TIDE_AES_GCM ?
			  "AES-GCM" : "None");
}

TIDE_LENDER_STORE(deadline_us, true,
		  tide_parse_deadline(who, page, &lender->config.deadline_us))

static ssize_t tide_lender_deadline_us_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%u\n", to_lender(item)->config.deadline_us);
}

/* The lender is told of the change. */
static ssize_t tide_lender_size_bytes_store(struct config_item *item,
					    const char *page, size_t count)
{
	struct tide_lender *lender = to_lender(item);
	char who[TIDE_WHO_SIZE];
	u64 bytes;
	int err;

	tide_who(who, sizeof(who), "lenders", lender->name);
	err = tide_parse_bytes(who, "size_bytes", page, TIDE_MIN_BYTES, &bytes);
	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	WRITE_ONCE(lender->config.size_bytes, bytes);
	if (lender->state != TIDE_LENDER_DISABLED)
		tide_lender_resize(lender);
	mutex_unlock(&tide_control_mutex);
	return count;
}

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

TIDE_BREAKER_STORE(breaker, tide_parse_breaker(who, page, &new.breaker))

static ssize_t tide_lender_breaker_show(struct config_item *item, char *page)
{
	static const char * const names[] = { "Off", "Thresholds", "Automatic" };

	return sysfs_emit(page, "%s\n", names[to_lender(item)->config.breaker]);
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

static ssize_t tide_lender_sequential_filter_store(struct config_item *item,
						   const char *page, size_t count)
{
	struct tide_lender *lender = to_lender(item);
	char who[TIDE_WHO_SIZE];
	bool on;
	int err;

	tide_who(who, sizeof(who), "lenders", lender->name);
	err = tide_parse_bool(who, "sequential_filter", page, &on);
	if (err)
		return err;
	mutex_lock(&tide_control_mutex);
	tide_filter_set(lender, on);
	mutex_unlock(&tide_control_mutex);
	return count;
}

static ssize_t tide_lender_sequential_filter_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", to_lender(item)->config.sequential_filter);
}

static int tide_lender_complete(const struct tide_lender *lender, const char *who)
{
	if (!lender->config.address.ss_family)
		return tide_refuse(-EINVAL, who, "address", "must be set before enabled");
	if (!lender->config.key_set)
		return tide_refuse(-EINVAL, who, "key", "must be set before enabled");
	if (!lender->config.size_bytes)
		return tide_refuse(-EINVAL, who, "size_bytes", "must be set before enabled");
	return 0;
}

static int tide_lender_switch(struct tide_lender *lender, const char *who, bool on)
{
	bool is_on = lender->state != TIDE_LENDER_DISABLED;
	int err;

	if (on == is_on)
		return 0;
	if (!on) {
		tide_lender_disable(lender);
		return 0;
	}
	err = tide_lender_complete(lender, who) ?: tide_lender_enable(lender);
	if (err == -ENOSPC)
		return tide_refuse(err, who, "enabled", "at most %d lenders",
				   TIDE_MAX_LENDERS);
	return err;
}

static ssize_t tide_lender_enabled_store(struct config_item *item,
					 const char *page, size_t count)
{
	struct tide_lender *lender = to_lender(item);
	char who[TIDE_WHO_SIZE];
	bool on;
	int err;

	tide_who(who, sizeof(who), "lenders", lender->name);
	if (kstrtobool(page, &on))
		return tide_refuse(-EINVAL, who, "enabled", "must be 0 or 1");
	mutex_lock(&tide_control_mutex);
	err = tide_lender_switch(lender, who, on);
	mutex_unlock(&tide_control_mutex);
	return err ?: count;
}

static ssize_t tide_lender_enabled_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n",
			  to_lender(item)->state != TIDE_LENDER_DISABLED);
}

static ssize_t tide_lender_state_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", tide_lender_state_name(to_lender(item)));
}

static ssize_t tide_lender_stats_show(struct config_item *item, char *page)
{
	struct tide_lender *lender = to_lender(item);
	int len = tide_show_lender_stats(&lender->stats, page);
	struct tide_breaker_means means;

	len += sysfs_emit_at(page, len, "catalog_pages %lld\n",
			     (s64)atomic64_read(&lender->catalog_pages));
	len += sysfs_emit_at(page, len, "granted_bytes %llu\n",
			     READ_ONCE(lender->granted_pages) << PAGE_SHIFT);
	len += sysfs_emit_at(page, len, "ping_us %llu\nrtt_us_ewma %llu\n",
			     READ_ONCE(lender->ping_ns) / 1000,
			     READ_ONCE(lender->rtt_ns) / 1000);
	tide_breaker_means(lender, &means);
	len += sysfs_emit_at(page, len, "breaker_open %d\n", tide_breaker_open(lender));
	len += sysfs_emit_at(page, len, "ping_us_short %llu\nping_us_long %llu\n",
			     means.short_ns / 1000, means.long_ns / 1000);
	len += sysfs_emit_at(page, len, "get_us_short %llu\n", means.get_ns / 1000);
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
CONFIGFS_ATTR_WO(tide_lender_, key);
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
CONFIGFS_ATTR_RO(tide_lender_, stats);
CONFIGFS_ATTR_RO(tide_lender_, latency);

static struct configfs_attribute *tide_lender_attrs[] = {
	&tide_lender_attr_address,
	&tide_lender_attr_port,
	&tide_lender_attr_key,
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

static const struct config_item_type tide_lenders_type = {
	.ct_group_ops = &tide_lenders_ops,
	.ct_owner = THIS_MODULE,
};

/* ------------------------------------------------------------------ */
/* borrowers/NAME						       */
/* ------------------------------------------------------------------ */

struct tide_borrower_item {
	struct config_item item;
	struct tide_borrower *borrower;
};

static struct tide_borrower *to_borrower(struct config_item *item)
{
	return container_of(item, struct tide_borrower_item, item)->borrower;
}

static ssize_t tide_borrower_key_store(struct config_item *item,
				       const char *page, size_t count)
{
	struct tide_borrower *borrower = to_borrower(item);
	char who[TIDE_WHO_SIZE];
	u8 key[TIDE_KEY_SIZE];
	int err;

	tide_who(who, sizeof(who), "borrowers", borrower->name);
	err = tide_parse_key(who, page, count, key);
	if (!err)
		tide_borrower_rekey(borrower, key);
	memzero_explicit(key, sizeof(key));
	return err ?: count;
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

static int tide_borrower_switch(struct tide_borrower *borrower, const char *who, bool on)
{
	int err;

	if (on == borrower->enabled)
		return 0;
	if (!on) {
		tide_borrower_disable(borrower);
		return 0;
	}
	if (!borrower->key_set)
		return tide_refuse(-EINVAL, who, "key", "must be set before enabled");
	if (!borrower->quota_bytes)
		return tide_refuse(-EINVAL, who, "quota_bytes", "must be set before enabled");
	err = tide_borrower_enable(borrower);
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
	if (kstrtobool(page, &on))
		return tide_refuse(-EINVAL, who, "enabled", "must be 0 or 1");
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

CONFIGFS_ATTR_WO(tide_borrower_, key);
CONFIGFS_ATTR(tide_borrower_, quota_bytes);
CONFIGFS_ATTR(tide_borrower_, enabled);
CONFIGFS_ATTR_RO(tide_borrower_, state);
CONFIGFS_ATTR_RO(tide_borrower_, stats);

static struct configfs_attribute *tide_borrower_attrs[] = {
	&tide_borrower_attr_key,
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

static const struct config_item_type tide_borrowers_type = {
	.ct_group_ops = &tide_borrowers_ops,
	.ct_owner = THIS_MODULE,
};

/* ------------------------------------------------------------------ */
/* tidepool/							       */
/* ------------------------------------------------------------------ */

static ssize_t tide_root_version_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", THIS_MODULE->version);
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
	int err, mode = __sysfs_match_string(tide_ghost_modes,
					     ARRAY_SIZE(tide_ghost_modes), page);

	if (mode < 0)
		return tide_refuse(-EINVAL, "tidepool", "ghost",
				   "must be Off, NonInclusive or Exclusive");
	mutex_lock(&tide_control_mutex);
	err = tide_ghost_switch(mode);
	mutex_unlock(&tide_control_mutex);
	return err ?: count;
}

static ssize_t tide_root_ghost_curve_show(struct config_item *item, char *page)
{
	return tide_ghost_show(page);
}

CONFIGFS_ATTR_RO(tide_root_, version);
CONFIGFS_ATTR_RO(tide_root_, stats);
CONFIGFS_ATTR_RO(tide_root_, latency);
CONFIGFS_ATTR(tide_root_, port);
CONFIGFS_ATTR(tide_root_, lend_bytes);
CONFIGFS_ATTR(tide_root_, reserve_bytes);
CONFIGFS_ATTR(tide_root_, ghost);
CONFIGFS_ATTR_RO(tide_root_, ghost_curve);

static struct configfs_attribute *tide_root_attrs[] = {
	&tide_root_attr_version,
	&tide_root_attr_stats,
	&tide_root_attr_latency,
	&tide_root_attr_port,
	&tide_root_attr_lend_bytes,
	&tide_root_attr_reserve_bytes,
	&tide_root_attr_ghost,
	&tide_root_attr_ghost_curve,
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
