// SPDX-License-Identifier: GPL-2.0-only
/*
 * When this guest's memory goes back in time: it is reverted to an older image,
 * is a clone's copy, or comes back from hibernation. Then versions are given a
 * second time, and the lender's pages are those of another time line.
 *
 * Nothing here is needed for that to be safe. No connection outlives such a
 * leap, for its other end has gone on; and what comes after is under another key
 * (epochs.c). The session goes on only with a lender that has seen no version newer
 * than those that this memory knows of. But until the old connection is found to be
 * dead it is asked in vain; and what can be known before the leap is done before:
 * an image of this memory has no session in it. Where the kernel hears of a leap,
 * that ends the sessions at once, and the guest is somebody else: of a machine and
 * its clone at most one is the other's peer.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/notifier.h>
#include <linux/random.h>
#include <linux/suspend.h>

#include "base/identity.h"
#include "base/timeline.h"

static bool tide_held;
static void (*tide_sessions_end)(void);

/**
 * tide_timeline_held() - must no session begin now?
 *
 * Whoever has made its socket known to tide_lenders_renounce() before it asks is
 * refused here or broken there.
 */
bool tide_timeline_held(void)
{
	return READ_ONCE(tide_held);
}

static void tide_timeline_hold(bool held)
{
	WRITE_ONCE(tide_held, held);
	tide_sessions_end();
}

/* The hypervisor calls this machine another one; the kernel's random numbers are fresh by now. */
static int tide_on_fork(struct notifier_block *nb, unsigned long action, void *data)
{
	pr_info("this machine was reverted or cloned: all sessions end, its identity is another one\n");
	if (tide_identity_renew())
		pr_err("no identity could be drawn, it is the former one\n");
	tide_timeline_hold(READ_ONCE(tide_held));
	return NOTIFY_DONE;
}

/*
 * While the image of a hibernation is written, the memory that it was made of
 * goes on and evicts pages; after the image was read, processes run before we
 * hear of it. So there is no session from before the one to after the other.
 */
static int tide_on_power(struct notifier_block *nb, unsigned long action, void *data)
{
	switch (action) {
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:
		pr_info("hibernation: no session until it is over\n");
		tide_timeline_hold(true);
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		tide_timeline_hold(false);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block tide_fork_notifier = { .notifier_call = tide_on_fork };
static struct notifier_block tide_power_notifier = { .notifier_call = tide_on_power };

/**
 * tide_timeline_init() - watch over this guest's time line
 * @end_sessions: ends all sessions; may sleep
 *
 * Return: 0 or a negative errno.
 */
int tide_timeline_init(void (*end_sessions)(void))
{
	int err;

	tide_sessions_end = end_sessions;
	err = register_random_vmfork_notifier(&tide_fork_notifier);
	if (err)
		return err;
	err = register_pm_notifier(&tide_power_notifier);
	if (err)
		unregister_random_vmfork_notifier(&tide_fork_notifier);
	return err;
}

void tide_timeline_exit(void)
{
	unregister_pm_notifier(&tide_power_notifier);
	unregister_random_vmfork_notifier(&tide_fork_notifier);
}
