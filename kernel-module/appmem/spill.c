// SPDX-License-Identifier: GPL-2.0-only
/*
 * The file in which a kept pool has what lenders may lose. Its program has made it as
 * large as it is to be, and the file system has allocated all of it. What is written goes
 * through the page cache. So the guest's own dirty limits bound what waits for the disk,
 * and what is used often stays in memory. A restart of the guest ends the pool: the map
 * of what is where is in memory alone.
 */
#include <linux/fs.h>
#include <linux/fadvise.h>
#include <linux/file.h>
#include <linux/genalloc.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/magic.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "appmem/spill.h"
#include "base/broken.h"

#define TIDE_SPILL_BASE		PAGE_SIZE	/* where the file begins: 0 is nowhere */

/**
 * struct tide_spill - a file of pages
 * @list: among all
 * @file: that the program has opened
 * @room: which of its pages are free
 * @since: errors of writing back before it was opened
 * @reads: of its disk
 */
struct tide_spill {
	struct list_head list;
	struct file *file;
	struct gen_pool *room;
	errseq_t since;
	atomic64_t reads;
};

static LIST_HEAD(tide_spills);
static DEFINE_MUTEX(tide_spills_mutex);

/* ------------------------------------------------------------------ */
/* the file							       */
/* ------------------------------------------------------------------ */

/*
 * A disk of this guest is below it. Another program answers for FUSE, a network for NFS,
 * and memory for tmpfs: nobody's value waits for these.
 */
static bool tide_spill_is_on_disk(const struct inode *inode)
{
	const struct super_block *sb = inode->i_sb;

	return sb->s_type->fs_flags & FS_REQUIRES_DEV && sb->s_magic != FUSE_SUPER_MAGIC;
}

static int tide_spill_check(const struct file *file)
{
	const struct inode *inode = file_inode(file);

	if (!S_ISREG(inode->i_mode) || file->f_flags & (O_APPEND | O_DIRECT) ||
	    i_size_read(inode) < (loff_t)PAGE_SIZE)
		return -EINVAL;
	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) != (FMODE_READ | FMODE_WRITE))
		return -EBADF;
	if (IS_SWAPFILE(inode))
		return -ETXTBSY;
	return tide_spill_is_on_disk(inode) ? 0 : -EOPNOTSUPP;
}

static u64 tide_spill_size(const struct file *file)
{
	return round_down(i_size_read(file_inode(file)), PAGE_SIZE);
}

static int tide_spill_map(struct tide_spill *spill)
{
	spill->room = gen_pool_create(PAGE_SHIFT, NUMA_NO_NODE);
	if (!spill->room)
		return -ENOMEM;
	return gen_pool_add(spill->room, TIDE_SPILL_BASE, tide_spill_size(spill->file),
			    NUMA_NO_NODE);
}

/* Two pools would write over each other. */
static int tide_spill_register(struct tide_spill *spill)
{
	struct tide_spill *other;
	int err = 0;

	mutex_lock(&tide_spills_mutex);
	list_for_each_entry(other, &tide_spills, list)
		if (file_inode(other->file) == file_inode(spill->file))
			err = -EBUSY;
	if (!err)
		list_add(&spill->list, &tide_spills);
	mutex_unlock(&tide_spills_mutex);
	return err;
}

static void tide_spill_free(struct tide_spill *spill)
{
	if (spill->room)
		gen_pool_destroy(spill->room);
	fput(spill->file);
	kfree(spill);
}

static int tide_spill_prepare(struct tide_spill *spill)
{
	struct file *file = spill->file;

	return tide_spill_check(file) ?:
	       vfs_fallocate(file, 0, 0, tide_spill_size(file)) ?:
	       vfs_fadvise(file, 0, 0, POSIX_FADV_RANDOM) ?:
	       tide_spill_map(spill) ?:
	       tide_spill_register(spill);
}

/**
 * tide_spill_open() - a file becomes a pool's
 * @descriptor: of the calling program, which has opened it to read and write
 *
 * Context: process; waits for the file system.
 * Return: it, for tide_spill_close(), or an error: -EBADF when it is not open like that,
 * -EINVAL when it is no file of a page or more, or is written to at its end or past the
 * page cache, -EOPNOTSUPP when no disk of this guest's has it or it cannot be allocated,
 * -ETXTBSY when it is swap, -EBUSY when it is another pool's, -ENOMEM, or what the file
 * system says.
 */
struct tide_spill *tide_spill_open(int descriptor)
{
	struct tide_spill *spill;
	int err;

	spill = kzalloc(sizeof(*spill), GFP_KERNEL_ACCOUNT);
	if (!spill)
		return ERR_PTR(-ENOMEM);
	spill->file = fget(descriptor);
	if (!spill->file) {
		kfree(spill);
		return ERR_PTR(-EBADF);
	}
	spill->since = filemap_sample_wb_err(spill->file->f_mapping);
	err = tide_spill_prepare(spill);
	if (!err)
		return spill;
	tide_spill_free(spill);
	return ERR_PTR(err);
}

/**
 * tide_spill_close() - undo tide_spill_open()
 * @spill: all of which has been given back; may be NULL
 *
 * Context: process.
 */
void tide_spill_close(struct tide_spill *spill)
{
	if (!spill)
		return;
	mutex_lock(&tide_spills_mutex);
	list_del(&spill->list);
	mutex_unlock(&tide_spills_mutex);
	tide_spill_free(spill);
}

/**
 * tide_spill_bytes() - what the map of a file takes of the guest's memory
 * @spill: the file
 */
size_t tide_spill_bytes(const struct tide_spill *spill)
{
	return sizeof(*spill) + (gen_pool_size(spill->room) >> PAGE_SHIFT) / BITS_PER_BYTE;
}

/**
 * tide_spill_reads() - how often its disk has answered
 * @spill: the file
 */
u64 tide_spill_reads(struct tide_spill *spill)
{
	return atomic64_read(&spill->reads);
}

/* ------------------------------------------------------------------ */
/* its pages							       */
/* ------------------------------------------------------------------ */

/**
 * tide_spill_take() - room for pages
 * @spill: the file
 * @count: how many, one after the other
 *
 * Return: where, for tide_spill_give_back(), or 0: there is none.
 */
u64 tide_spill_take(struct tide_spill *spill, unsigned int count)
{
	return gen_pool_alloc(spill->room, (size_t)count << PAGE_SHIFT);
}

/**
 * tide_spill_give_back() - undo tide_spill_take()
 * @spill: the file
 * @at: where
 * @count: how many pages
 */
void tide_spill_give_back(struct tide_spill *spill, u64 at, unsigned int count)
{
	gen_pool_free(spill->room, at, (size_t)count << PAGE_SHIFT);
}

/* What was written has not all reached the disk: what is read from there may be older. */
static int tide_spill_error(const struct tide_spill *spill)
{
	return filemap_check_wb_err(spill->file->f_mapping, spill->since) &&
	       !tide_broken(APP_SPILL_ERROR) ? -EIO : 0;
}

static int tide_spill_write_page(struct tide_spill *spill, loff_t from, struct page *page)
{
	const void *bytes = kmap_local_page(page);
	ssize_t written = kernel_write(spill->file, bytes, PAGE_SIZE, &from);

	kunmap_local(bytes);
	if (written < 0)
		return written;
	return written == PAGE_SIZE ? 0 : -EIO;
}

/**
 * tide_spill_write() - write pages
 * @spill: the file
 * @at: where, of tide_spill_take()
 * @pages: with what
 * @count: how many
 *
 * Context: process; waits for the file system.
 * Return: 0, -EIO, also when something before did not reach the disk, or what the file
 * system says.
 */
int tide_spill_write(struct tide_spill *spill, u64 at, struct page **pages, unsigned int count)
{
	int err = tide_spill_error(spill);
	unsigned int i;

	for (i = 0; !err && i < count; i++)
		err = tide_spill_write_page(spill, at - TIDE_SPILL_BASE + ((u64)i << PAGE_SHIFT),
					    pages[i]);
	return err;
}

/**
 * tide_spill_keep() - find room for pages, and write them there
 * @spill: the file
 * @pages: with what
 * @count: how many
 * @at: set to where
 *
 * Context: process; waits for the file system.
 * Return: 0, -ENOSPC when there are not so many free ones one after the other, or see
 * tide_spill_write().
 */
int tide_spill_keep(struct tide_spill *spill, struct page **pages, unsigned int count, u64 *at)
{
	u64 free = tide_spill_take(spill, count);
	int err;

	if (!free)
		return -ENOSPC;
	err = tide_spill_write(spill, free, pages, count);
	if (err)
		tide_spill_give_back(spill, free, count);
	else
		*at = free;
	return err;
}

static int tide_spill_read_page(struct tide_spill *spill, loff_t from, struct page *page,
				bool cached)
{
	void *bytes = kmap_local_page(page);
	struct kvec part = { .iov_base = bytes, .iov_len = PAGE_SIZE };
	struct kiocb kiocb;
	struct iov_iter to;
	ssize_t got;

	init_sync_kiocb(&kiocb, spill->file);
	kiocb.ki_pos = from;
	kiocb.ki_flags |= cached ? IOCB_NOIO : 0;
	iov_iter_kvec(&to, ITER_DEST, &part, 1, PAGE_SIZE);
	got = vfs_iocb_iter_read(spill->file, &kiocb, &to);
	kunmap_local(bytes);
	if (got < 0)
		return got;
	return got == PAGE_SIZE ? 0 : -EIO;
}

/**
 * tide_spill_read() - read pages
 * @spill: the file
 * @at: where, of tide_spill_take()
 * @pages: to be filled
 * @count: how many
 * @cached: only if the guest has them all in memory
 *
 * Context: process; waits for the disk, unless @cached.
 * Return: 0, -EAGAIN when the disk would have to be asked, -EIO, also when something has
 * not reached the disk, or what the file system says.
 */
int tide_spill_read(struct tide_spill *spill, u64 at, struct page **pages, unsigned int count,
		    bool cached)
{
	int err = tide_spill_error(spill);
	unsigned int i;

	if (!cached)
		atomic64_inc(&spill->reads);
	for (i = 0; !err && i < count; i++)
		err = tide_spill_read_page(spill, at - TIDE_SPILL_BASE + ((u64)i << PAGE_SHIFT),
					   pages[i], cached);
	return err;
}
