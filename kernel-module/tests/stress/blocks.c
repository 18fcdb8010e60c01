// SPDX-License-Identifier: GPL-2.0
/* What gives a file other blocks past its page cache, by the calls of one file system. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <fcntl.h>
#include <unistd.h>

#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>

#include "stress.h"

#define EXT4_IOC_SWAP_BOOT	_IO('f', 17)
#define ENCODED_BYTES		(128 * 1024)

/* As in xfs_fs.h, which not every distribution has among the kernel's headers. */
struct xfs_time {
	int64_t seconds;
	int32_t nanoseconds;
};

struct xfs_inode {
	uint64_t number;
	uint16_t mode, links;
	uint32_t user, group, device;
	int32_t block_size;
	int64_t size;
	struct xfs_time read, written, changed;
	int64_t blocks;
	uint32_t flags;
	int32_t extent_size, extents;
	uint32_t generation;
	uint16_t project_low, fork, project_high, sick, checked;
	char padding[2];
	uint32_t clone_extent_size, event_mask;
	uint16_t event_state, attribute_extents;
};

struct xfs_one {
	uint64_t *number;
	int32_t count;
	struct xfs_inode *inode;
	int32_t *found;
};

struct xfs_swap {
	int64_t version, target, other;
	int64_t offset, length;
	char padding[16];
	struct xfs_inode seen;
};

#define XFS_IOC_FSBULKSTAT_SINGLE	_IOWR('X', 102, struct xfs_one)
#define XFS_IOC_SWAPEXT			_IOWR('X', 109, struct xfs_swap)

/* ext4: the file and the boot loader's inode exchange what they hold. */
static int swap_boot(int file)
{
	return ioctl(file, EXT4_IOC_SWAP_BOOT);
}

/* XFS: the file and its donor, of the same size, exchange what they hold, as xfs_fsr has it done. */
static int swap_extents(int file)
{
	struct xfs_swap swap = { .target = file, .other = open_or_die(option_text("donor", ""), O_RDWR) };
	struct stat status;
	uint64_t number;
	int32_t found;
	struct xfs_one one = { .number = &number, .count = 1, .inode = &swap.seen, .found = &found };

	if (fstat(file, &status))
		return -1;
	number = status.st_ino;
	swap.length = status.st_size;
	return ioctl(file, XFS_IOC_FSBULKSTAT_SINGLE, &one) || ioctl(file, XFS_IOC_SWAPEXT, &swap);
}

/* btrfs: the first 128 KiB of the file become what another file holds compressed by zlib. */
static int write_encoded(int file)
{
	static char data[ENCODED_BYTES];
	struct iovec piece = { .iov_base = data };
	ssize_t length = read(open_or_die(option_text("from", ""), O_RDONLY), data, sizeof(data));
	struct btrfs_ioctl_encoded_io_args encoded = {
		.iov = &piece,
		.iovcnt = 1,
		.len = sizeof(data),
		.unencoded_len = sizeof(data),
		.compression = BTRFS_ENCODED_IO_COMPRESSION_ZLIB,
	};

	piece.iov_len = length < 0 ? 0 : length;
	return ioctl(file, BTRFS_IOC_ENCODED_WRITE, &encoded) < 0;
}

/* The file and its donor hold the same, and share blocks from now on. */
static int share(int file)
{
	struct {
		struct file_dedupe_range head;
		struct file_dedupe_range_info donor;
	} range = { .head.dest_count = 1, .donor.dest_fd = open_or_die(option_text("donor", ""), O_RDWR) };
	struct stat status;

	if (fstat(file, &status))
		return -1;
	range.head.src_length = status.st_size;
	if (ioctl(file, FIDEDUPERANGE, &range) || range.donor.status)
		return -1;
	printf("{\"shared\": %llu}\n", (unsigned long long)range.donor.bytes_deduped);
	return 0;
}

static int defragment(int file)
{
	return ioctl(file, BTRFS_IOC_DEFRAG, NULL);
}

/* btrfs: all that its file system has is written anew elsewhere. */
static int balance(int file)
{
	struct btrfs_ioctl_balance_args all = { .flags = BTRFS_BALANCE_DATA | BTRFS_BALANCE_METADATA };

	return ioctl(file, BTRFS_IOC_BALANCE_V2, &all);
}

/* stress blocks FILE by=…: see the table. */
int mode_blocks(const char *path)
{
	static const struct {
		const char *by;
		int (*change)(int file);
	} ways[] = {
		{ "boot", swap_boot },
		{ "extents", swap_extents },
		{ "encoded", write_encoded },
		{ "dedupe", share },
		{ "defragment", defragment },
		{ "balance", balance },
	};
	const char *by = option_text("by", "");

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (strcmp(by, ways[i].by))
			continue;
		if (ways[i].change(open_or_die(path, O_RDWR)))
			die(by);
		return verdict();
	}
	errno = EINVAL;
	die(by);
}
