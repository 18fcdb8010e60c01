// SPDX-License-Identifier: GPL-2.0-only
/*
 * Load and unload. Every part is brought up in an order in which it may be
 * used at once, and taken down in the reverse; a guest whose kernel lacks what
 * a part needs is refused with the name of what is missing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sizes.h>

#include "base/crypto.h"
#include "base/identity.h"
#include "base/selftest.h"
#include "base/timeline.h"
#include "borrower/borrowing.h"
#include "borrower/buffers.h"
#include "borrower/catalog.h"
#include "borrower/catalog_shrinker.h"
#include "borrower/disk_latency.h"
#include "control/configfs.h"
#include "control/selftest.h"
#include "lender/lending.h"
#include "lender/shelf.h"
#include "pagecache/file.h"
#include "pagecache/hooks.h"
#include "pagecache/verify.h"

static_assert(PAGE_SIZE == SZ_4K, "the wire carries pages of 4096 bytes");

static void tide_end_sessions(void)
{
	tide_lenders_renounce();
	tide_lending_renounce();
}

static int tide_watch_timeline(void)
{
	return tide_timeline_init(tide_end_sessions);
}

static const struct {
	const char *name;
	int (*init)(void);
	void (*exit)(void);
} parts[] = {
	{ "self-test", tide_selftest_init, NULL },
	{ "identity", tide_identity_renew, tide_identity_exit },
	{ "encryption", tide_crypto_init, NULL },
	{ "catalog", tide_catalog_init, tide_catalog_exit },
	{ "self-test of the parts", tide_parts_test_init, NULL },
	{ "files", tide_files_init, tide_files_exit },
	{ "put buffers", tide_buffers_init, NULL },
	{ "disk", tide_disk_init, tide_disk_exit },
	{ "verification", tide_verify_init, NULL },
	{ "store", tide_shelf_init, tide_shelf_exit },
	{ "shrinker", tide_shrinker_init, tide_shrinker_exit },
	{ "hooks", tide_hooks_init, tide_hooks_exit },
	{ "time line", tide_watch_timeline, tide_timeline_exit },
	{ "configfs", tide_control_init, tide_control_exit },
};

static void tide_take_down(int up)
{
	while (up--)
		if (parts[up].exit)
			parts[up].exit();
}

static int __init tide_module_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		err = parts[i].init();
		if (err) {
			pr_err("not loaded: %s: error %d\n", parts[i].name, err);
			tide_take_down(i);
			return err;
		}
	}
	pr_info("loaded, version %s\n", THIS_MODULE->version);
	if (__is_defined(TIDEPOOL_UNTRIED))
		pr_warn("nobody has looked at this kernel for what the module relies on; it was built by TIDEPOOL_ANY_KERNEL=1\n");
	if (__is_defined(TIDEPOOL_BREAKABLE))
		pr_warn("this is the build for tests, of which mechanisms can be broken\n");
	return 0;
}

static void __exit tide_module_exit(void)
{
	tide_take_down(ARRAY_SIZE(parts));
	pr_info("unloaded\n");
}

module_init(tide_module_init);
module_exit(tide_module_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(TIDEPOOL_VERSION);
MODULE_AUTHOR("Tidepool");
MODULE_DESCRIPTION("Remote page cache: evicted pages live in another machine's unused memory");
