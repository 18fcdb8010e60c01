// SPDX-License-Identifier: GPL-2.0
/* What makes inodes of one file system that have the same number: subvolumes and snapshots of btrfs. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/btrfs.h>

#include "stress.h"

/* stress subvolume FOLDER [of=SUBVOLUME]: a new, empty subvolume, or a snapshot of one. */
int mode_subvolume(const char *path)
{
	const char *name = strrchr(path, '/'), *of = option_text("of", NULL);
	struct btrfs_ioctl_vol_args arguments = { .fd = of ? open_or_die(of, O_RDONLY) : -1 };
	char folder[256];

	if (!name || name == path || strlen(name) > 255) {
		errno = EINVAL;
		die(path);
	}
	snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
	strcpy(arguments.name, name + 1);
	if (ioctl(open_or_die(folder, O_RDONLY), of ? BTRFS_IOC_SNAP_CREATE : BTRFS_IOC_SUBVOL_CREATE, &arguments))
		die(path);
	return 0;
}
