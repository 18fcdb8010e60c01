// SPDX-License-Identifier: GPL-2.0-only
/*
 * What has to be known of a mounted file system before its first page is lent, and
 * can only be read where one may sleep: each is looked at once, by a worker, when
 * the first of its files is to be taken into the catalog. Until the answer is there
 * its pages stay in the guest.
 *
 * So far that is one thing: ext4 with inline_data writes small files inside their
 * inodes, with not a word to the page cache. The reasons are in FILESYSTEMS.md.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/buffer_head.h>
#include <linux/hashtable.h>
#include <linux/magic.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "base/broken.h"
#include "base/compat.h"
#include "pagecache/inflight.h"
#include "pagecache/superblock.h"

#define TIDE_SUPER_BITS		6

/* On disk: where ext4's superblock is, and what it says. */
#define TIDE_EXT4_SUPER		1024
#define TIDE_EXT4_MAGIC		0x38
#define TIDE_EXT4_INCOMPAT	0x60
#define TIDE_EXT4_INLINE_DATA	0x8000

/* A file system that was looked at. */
struct tide_super {
	struct hlist_node hash;
	const struct super_block *sb;
	bool lends;
	struct rcu_head rcu;
};

static void tide_super_look(struct work_struct *work);

static DEFINE_HASHTABLE(tide_supers, TIDE_SUPER_BITS);
static DEFINE_MUTEX(tide_supers_mutex);		/* writers of the table */
static struct super_block *tide_super_asked;	/* the worker holds it active */
static DECLARE_WORK(tide_super_work, tide_super_look);

static struct tide_super *tide_super_find(const struct super_block *sb)
{
	struct tide_super *super;

	hash_for_each_possible_rcu(tide_supers, super, hash, (unsigned long)sb,
				   lockdep_is_held(&tide_supers_mutex))
		if (super->sb == sb)
			return super;
	return NULL;
}

/* Does ext4 write all data by way of the page cache here? Sleeps. */
static bool tide_ext4_lends(struct super_block *sb)
{
	struct buffer_head *bh = sb_bread(sb, TIDE_EXT4_SUPER / sb->s_blocksize);
	const u8 *disk;
	u32 incompat;
	u16 magic;

	if (!bh)
		return false;
	disk = (u8 *)bh->b_data + TIDE_EXT4_SUPER % sb->s_blocksize;
	magic = get_unaligned_le16(disk + TIDE_EXT4_MAGIC);
	incompat = get_unaligned_le32(disk + TIDE_EXT4_INCOMPAT);
	brelse(bh);
	if (magic != EXT4_SUPER_MAGIC) {
		pr_info("pages of ext4 on %s stay here: its first superblock is not valid\n",
			sb->s_id);
		return false;
	}
	if (incompat & TIDE_EXT4_INLINE_DATA && !tide_broken(FEATURES)) {
		pr_info("pages of ext4 on %s stay here: inline_data keeps small files in their inodes\n",
			sb->s_id);
		return false;
	}
	return true;
}

static void tide_super_add(struct super_block *sb)
{
	struct tide_super *super = kzalloc(sizeof(*super), GFP_KERNEL);

	if (!super)
		return;		/* it is asked again */
	super->sb = sb;
	super->lends = tide_ext4_lends(sb);
	hash_add_rcu(tide_supers, &super->hash, (unsigned long)sb);
}

static void tide_super_look(struct work_struct *work)
{
	struct super_block *sb = READ_ONCE(tide_super_asked);

	mutex_lock(&tide_supers_mutex);
	if (!tide_super_find(sb))	/* two may have asked one after the other */
		tide_super_add(sb);
	mutex_unlock(&tide_supers_mutex);
	WRITE_ONCE(tide_super_asked, NULL);
	deactivate_super(sb);
}

/* One at a time; who finds the worker busy asks again with his next page. */
static void tide_super_ask(struct super_block *sb)
{
	if (READ_ONCE(tide_super_asked) || cmpxchg(&tide_super_asked, NULL, sb))
		return;
	if (atomic_inc_not_zero(&sb->s_active))
		schedule_work(&tide_super_work);
	else		/* being unmounted */
		WRITE_ONCE(tide_super_asked, NULL);
}

/* May files of this file system be known? False until it has been looked at. */
static bool tide_super_lends(struct super_block *sb)
{
	struct tide_super *super;
	bool lends;

	if (sb->s_magic != EXT4_SUPER_MAGIC)
		return true;
	rcu_read_lock();
	super = tide_super_find(sb);
	lends = super && super->lends;
	rcu_read_unlock();
	if (!super)
		tide_super_ask(sb);
	return lends;
}

/**
 * tide_file_admitted() - may a file be taken into the catalog now?
 * @inode: a regular file of an eligible file system
 *
 * Context: any.
 */
bool tide_file_admitted(struct inode *inode)
{
	return tide_super_lends(inode->i_sb) && !tide_gate_unsettled(inode);
}

static void tide_super_remove(struct tide_super *super)
{
	hash_del_rcu(&super->hash);
	kfree_rcu(super, rcu);
}

/**
 * tide_super_left() - a file system is unmounted
 * @sb: no inode of it is left
 *
 * Context: process.
 */
void tide_super_left(const struct super_block *sb)
{
	struct tide_super *super;

	mutex_lock(&tide_supers_mutex);
	super = tide_super_find(sb);
	if (super)
		tide_super_remove(super);
	mutex_unlock(&tide_supers_mutex);
}

/**
 * tide_supers_forget() - unmounts are not seen from now on
 *
 * Context: process; nobody takes files into the catalog any more.
 */
void tide_supers_forget(void)
{
	struct tide_super *super;
	struct hlist_node *next;
	int bucket;

	flush_work(&tide_super_work);
	mutex_lock(&tide_supers_mutex);
	hash_for_each_safe(tide_supers, bucket, next, super, hash)
		tide_super_remove(super);
	mutex_unlock(&tide_supers_mutex);
}
