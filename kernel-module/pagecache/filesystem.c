// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which files may go to the pool, and what tells two of them apart: what has to
 * be known of a file system to be safe on it. The reasons are in FILESYSTEMS.md.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/exportfs.h>
#include <linux/magic.h>

#include "base/broken.h"
#include "base/compat.h"
#include "pagecache/filesystem.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC	0x58465342	/* "XFSB" */
#endif

#define TIDE_NAMED_MAX	8	/* types of file systems that the log names */

/* On disk: the first subvolume, and the range of all others. */
#define TIDE_BTRFS_FS_TREE	5ULL
#define TIDE_BTRFS_FIRST	256ULL
#define TIDE_BTRFS_LAST		(-256ULL)

/* What btrfs puts into a file handle, in words of 32 bits: inode, subvolume, generation. */
#define TIDE_BTRFS_FH_WORDS	5
#define TIDE_BTRFS_FH_ROOT	2

/**
 * tide_eligible_super() - is this a file system that was proved to be safe?
 * @sb: any
 */
bool tide_eligible_super(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case EXT4_SUPER_MAGIC:	/* ext2.ko has the same, and does not use iomap */
		return strcmp(sb->s_type->name, "ext2");
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
		return true;
	case NFS_SUPER_MAGIC:	/* takes an empty page cache for a clean slate */
		return tide_broken(NFS);
	default:
		return false;
	}
}

/**
 * tide_exchanges_extents() - does it exchange blocks of two files past their page cache?
 * @sb: of an eligible file system
 *
 * The others take both mappings' invalidate_lock and empty the page cache first.
 */
bool tide_exchanges_extents(const struct super_block *sb)
{
	return sb->s_magic == EXT4_SUPER_MAGIC;
}

/**
 * tide_locks_extents() - does it keep readers out of a range by its own locks?
 * @sb: of an eligible file system
 *
 * Others take the mapping's invalidate_lock from before they empty the page
 * cache until the blocks are changed, so that nothing is read in between. One
 * that does not looks whether the page cache is still empty once it has its
 * own lock, and then the pool has to be empty as well.
 */
bool tide_locks_extents(const struct super_block *sb)
{
	return sb->s_magic == BTRFS_SUPER_MAGIC;
}

/**
 * tide_volume() - in which part of its file system is an inode?
 * @inode: of an eligible file system
 *
 * The subvolumes of btrfs share one superblock, and each has an inode 257; a
 * snapshot even has the generations of what it is a snapshot of.
 *
 * Context: any.
 * Return: a number that makes the inode's unique, 0 where it is by itself.
 */
u64 tide_volume(struct inode *inode)
{
	u32 handle[TIDE_BTRFS_FH_WORDS] = { };
	int words = TIDE_BTRFS_FH_WORDS;

	if (inode->i_sb->s_magic != BTRFS_SUPER_MAGIC || tide_broken(VOLUME))
		return 0;
	/* made of what is in memory, without a lock */
	inode->i_sb->s_export_op->encode_fh(inode, handle, &words, NULL);
	return get_unaligned((u64 *)(handle + TIDE_BTRFS_FH_ROOT));
}

/* Trees that are btrfs's own have files too: space cache, relocated extents. */
static bool tide_volume_eligible(struct inode *inode)
{
	u64 volume;

	if (inode->i_sb->s_magic != BTRFS_SUPER_MAGIC || tide_broken(VOLUME))
		return true;
	volume = tide_volume(inode);
	return volume == TIDE_BTRFS_FS_TREE ||
	       (volume >= TIDE_BTRFS_FIRST && volume <= TIDE_BTRFS_LAST);
}

/**
 * tide_watched() - may pages of this mapping be in the pool?
 * @mapping: any
 *
 * Regular files of the file systems that were proved to be safe, no block
 * devices. It stays as it is for as long as the inode is in memory, so whatever
 * drops pages of a file goes by it.
 *
 * Context: any.
 */
bool tide_watched(struct address_space *mapping)
{
	struct inode *inode = mapping->host;

	return inode && S_ISREG(inode->i_mode) && mapping == &inode->i_data &&
	       tide_eligible_super(inode->i_sb) && tide_volume_eligible(inode);
}

/**
 * tide_eligible() - may pages of this mapping go to the pool, and come from it?
 * @mapping: any
 *
 * Of what is watched, no DAX, encrypted or verity files, no swap files, no files of quotas that are
 * on: those are read and written past the page cache, or checked on their way
 * from the disk. A file may become one while its pages are in the pool.
 *
 * Context: any.
 */
bool tide_eligible(struct address_space *mapping)
{
	const struct inode *inode = mapping->host;

	if (!tide_watched(mapping))
		return false;
	return !(IS_DAX(inode) || IS_ENCRYPTED(inode) || IS_VERITY(inode) ||
		 IS_SWAPFILE(inode) || IS_NOQUOTA(inode)) || tide_broken(FLAGS);
}

static unsigned long tide_refused[TIDE_NAMED_MAX];	/* types, by their magic numbers */

/* Has a type of file system its place among those that are named, or is none left? */
static bool tide_is_named(unsigned long magic)
{
	int i;

	for (i = 0; i < TIDE_NAMED_MAX; i++) {
		unsigned long named = READ_ONCE(tide_refused[i]);

		if (!named || named == magic)
			return named;
	}
	return true;
}

/* Once for each type, whoever comes first. */
static noinline void tide_name(const struct super_block *sb)
{
	unsigned long old = sb->s_magic;
	int i;

	for (i = 0; i < TIDE_NAMED_MAX; i++) {
		old = cmpxchg(&tide_refused[i], 0, sb->s_magic);
		if (!old || old == sb->s_magic)
			break;
	}
	if (!old)
		pr_info("pages of %s stay here: only those of ext4, xfs and btrfs are lent\n",
			sb->s_type->name);
}

/**
 * tide_name_refused() - a page is evicted that might be lent on another file system
 * @mapping: not eligible
 *
 * Says so, once for each type of file system. Every page of such a one comes here: once
 * its type is named nothing is written.
 *
 * Context: any.
 */
void tide_name_refused(const struct address_space *mapping)
{
	const struct inode *inode = mapping->host;

	if (inode && S_ISREG(inode->i_mode) && !tide_eligible_super(inode->i_sb) &&
	    !tide_is_named(inode->i_sb->s_magic))
		tide_name(inode->i_sb);
}
