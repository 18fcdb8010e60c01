// SPDX-License-Identifier: GPL-2.0
/* What changes an inode past its page cache: exchanged extents, flags, verity, DAX. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <linux/fs.h>
#include <linux/fsverity.h>

#include "stress.h"

struct move_extent {
	uint32_t reserved, donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};

#define EXT4_IOC_MOVE_EXT	_IOWR('f', 15, struct move_extent)
#define EXT4_JOURNAL_DATA_FL	0x00004000

/* stress exchange FILE donor=FILE: ext4 gives FILE the donor's blocks, and the donor those of FILE. */
int mode_exchange(const char *path)
{
	int file = open_or_die(path, O_RDWR), donor = open_or_die(option_text("donor", ""), O_RDWR);
	struct move_extent move = { .donor_fd = donor };
	struct stat status;

	if (fstat(file, &status))
		die(path);
	move.len = status.st_size / PAGE;
	if (ioctl(file, EXT4_IOC_MOVE_EXT, &move))
		die("EXT4_IOC_MOVE_EXT");
	sync_file(file);
	sync_file(donor);
	printf("{\"moved\": %llu}\n", (unsigned long long)move.moved_len);
	return verdict();
}

/* stress journal FILE [changes=1]: ext4 puts the file's data into its journal, or no longer; the last change stays. */
int mode_journal(const char *path)
{
	int file = open_or_die(path, O_RDONLY), flags;
	long changes = option("changes", 1);

	for (long i = 0; i < changes; i++) {
		if (ioctl(file, FS_IOC_GETFLAGS, &flags))
			die("FS_IOC_GETFLAGS");
		flags ^= EXT4_JOURNAL_DATA_FL;
		if (ioctl(file, FS_IOC_SETFLAGS, &flags))
			die("FS_IOC_SETFLAGS");
	}
	printf("{\"journalled\": %d}\n", !!(flags & EXT4_JOURNAL_DATA_FL));
	return verdict();
}

/* stress verity FILE: from now on the file cannot be written, and what is read is checked. */
int mode_verity(const char *path)
{
	struct fsverity_enable_arg enable = {
		.version = 1, .hash_algorithm = FS_VERITY_HASH_ALG_SHA256, .block_size = PAGE,
	};

	if (ioctl(open_or_die(path, O_RDONLY), FS_IOC_ENABLE_VERITY, &enable))
		die("FS_IOC_ENABLE_VERITY");
	return verdict();
}

/*
 * stress dax FILE [set=0|1]: who opens FILE from now on reads and writes past the page cache, or
 * no longer. Without `set` it says which it is.
 */
int mode_dax(const char *path)
{
	int file = open_or_die(path, O_RDONLY);
	long set = option("set", -1);
	struct fsxattr flags;
	struct statx now;

	if (ioctl(file, FS_IOC_FSGETXATTR, &flags))
		die("FS_IOC_FSGETXATTR");
	if (set >= 0) {
		flags.fsx_xflags = (flags.fsx_xflags & ~FS_XFLAG_DAX) | (set ? FS_XFLAG_DAX : 0);
		if (ioctl(file, FS_IOC_FSSETXATTR, &flags))
			die("FS_IOC_FSSETXATTR");
	}
	if (statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now))
		die("statx");
	printf("{\"dax\": %d}\n", !!(now.stx_attributes & STATX_ATTR_DAX));
	return verdict();
}
