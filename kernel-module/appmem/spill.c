// SPDX-License-Identifier: GPL-2.0-only
/*
 * The file in which a kept pool has what lenders may lose. Its program has made it as
 * large as it is to be, and the file system has allocated all of it. What is written goes
 * through the page cache. So the guest's own dirty limits bound what waits for the disk,
 * and what is used often stays in memory. A restart of the guest ends the pool: the map
 * of what is where is in memory alone. So are sums of all that was written: a file system
 * that gives up, or a program that writes to the file, does not change what a pool says.
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
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/xxhash.h>

#include "appmem/spill.h"
#include "base/broken.h"

#define TIDE_SPILL_BASE		PAGE_SIZE	/* where the file begins: 0 is nowhere */
#define TIDE_SPILL_ASK		SZ_128K		/* bytes that are read ahead at once */
#define TIDE_SPILL_LEAST	(2 * PAGE_SIZE)	/* one is left to move values to */
#define TIDE_SPILL_PAUSE	(HZ / 50)	/* between looks whether it is frozen yet */

/**
 * struct tide_spill - a file of pages
 * @list: among all
 * @file: the one that the program has opened, as a description of its own
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
	    i_size_read(inode) < (loff_t)TIDE_SPILL_LEAST)
		return -EINVAL;
	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) != (FMODE_READ | FMODE_WRITE))
		return -EBADF;
	if (IS_SWAPFILE(inode))
		return -ETXTBSY;
	return tide_spill_is_on_disk(inode) && file->f_op->write_iter ? 0 : -EOPNOTSUPP;
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
	if (spill->file)
		fput(spill->file);
	kfree(spill);
}

/* A file system may be frozen for as long as its administrator likes: a signal ends the wait. */
static int tide_spill_start_write(struct file *file)
{
	while (!file_start_write_trylock(file)) {
		if (signal_pending(current))
			return -EINTR;
		schedule_timeout_interruptible(TIDE_SPILL_PAUSE);
	}
	return 0;
}

static int tide_spill_await_thaw(struct file *file)
{
	int err = tide_spill_start_write(file);

	if (!err)
		file_end_write(file);
	return err;
}

static int tide_spill_prepare(struct tide_spill *spill)
{
	struct file *file = spill->file;

	return tide_spill_await_thaw(file) ?:
	       vfs_fallocate(file, 0, 0, tide_spill_size(file)) ?:
	       vfs_fadvise(file, 0, 0, POSIX_FADV_RANDOM) ?:
	       tide_spill_map(spill) ?:
	       tide_spill_register(spill);
}

/* What the program makes of the flags of its own description is nothing to the pool. */
static int tide_spill_take_file(struct tide_spill *spill, const struct file *given)
{
	struct file *file;
	int err = tide_spill_check(given);

	if (err)
		return err;
	file = dentry_open(&given->f_path, O_RDWR | O_LARGEFILE | O_NOATIME, given->f_cred);
	if (IS_ERR(file))
		return PTR_ERR(file);
	spill->file = file;
	spill->since = filemap_sample_wb_err(file->f_mapping);
	return 0;
}

/**
 * tide_spill_await() - wait until a file's file system is not frozen any more
 * @descriptor: of the calling program; if it is none of a file, tide_spill_open() says so
 *
 * Context: process; nobody else may have to wait meanwhile.
 * Return: 0 or -EINTR.
 */
int tide_spill_await(int descriptor)
{
	struct file *file = fget(descriptor);
	int err;

	if (!file)
		return 0;
	err = tide_spill_check(file) ? 0 : tide_spill_await_thaw(file);
	fput(file);
	return err;
}

/**
 * tide_spill_open() - a file becomes a pool's
 * @descriptor: of the calling program, which has opened it to read and write
 *
 * Context: process; waits for the file system.
 * Return: it, for tide_spill_close(), or an error: -EBADF when it is not open like that,
 * -EINVAL when it is no file of two pages or more, or is written to at its end or past the
 * page cache, -EOPNOTSUPP when no disk of this guest's has it or it cannot be allocated,
 * -ETXTBSY when it is swap, -EBUSY when it is another pool's, -ENOMEM, -EINTR, or what the
 * file system says.
 */
struct tide_spill *tide_spill_open(int descriptor)
{
	struct tide_spill *spill;
	struct file *given;
	int err;

	spill = kzalloc(sizeof(*spill), GFP_KERNEL_ACCOUNT);
	if (!spill)
		return ERR_PTR(-ENOMEM);
	given = fget(descriptor);
	err = given ? tide_spill_take_file(spill, given) : -EBADF;
	if (given)
		fput(given);
	err = err ?: tide_spill_prepare(spill);
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
 * tide_spill_give_back() - undo tide_spill_take()
 * @spill: the file
 * @at: where
 * @count: how many pages
 */
void tide_spill_give_back(struct tide_spill *spill, u64 at, unsigned int count)
{
	gen_pool_free(spill->room, at, (size_t)count << PAGE_SHIFT);
}

/**
 * tide_spill_take() - room for pages
 * @spill: the file
 * @count: how many, one after the other
 * @moves: small values are put together there: one page is always left for that
 *
 * Return: where, for tide_spill_give_back(), or 0: there is none.
 */
u64 tide_spill_take(struct tide_spill *spill, unsigned int count, bool moves)
{
	u64 at = gen_pool_alloc(spill->room, (size_t)count << PAGE_SHIFT);

	if (at && !moves && !gen_pool_avail(spill->room)) {
		tide_spill_give_back(spill, at, count);
		return 0;
	}
	return at;
}

static u64 tide_spill_sum(struct page **pages, unsigned int count)
{
	u64 sum = 0;

	while (count--) {
		const void *bytes = kmap_local_page(*pages++);

		sum = xxh64(bytes, PAGE_SIZE, sum);
		kunmap_local(bytes);
	}
	return sum;
}

/*
 * May the calling program write there? Not where a disk has lost something, nor past the
 * program's limit for files: that would end it by a signal.
 */
static int tide_spill_may_write(const struct tide_spill *spill, u64 at, unsigned int count)
{
	if (filemap_check_wb_err(spill->file->f_mapping, spill->since))
		return -EIO;
	return at - TIDE_SPILL_BASE + ((u64)count << PAGE_SHIFT) > rlimit(RLIMIT_FSIZE) ?
	       -EFBIG : 0;
}

static int tide_spill_write_page(struct tide_spill *spill, loff_t from, struct page *page)
{
	int err = tide_spill_start_write(spill->file);
	struct kvec part = { .iov_len = PAGE_SIZE };
	struct iov_iter bytes;
	struct kiocb kiocb;
	ssize_t written;

	if (err)
		return err;
	init_sync_kiocb(&kiocb, spill->file);
	kiocb.ki_pos = from;
	part.iov_base = kmap_local_page(page);
	iov_iter_kvec(&bytes, ITER_SOURCE, &part, 1, PAGE_SIZE);
	written = spill->file->f_op->write_iter(&kiocb, &bytes);
	kunmap_local(part.iov_base);
	file_end_write(spill->file);
	if (written < 0)
		return written;
	return written == PAGE_SIZE ? 0 : -EIO;
}

/**
 * tide_spill_write() - write pages
 * @spill: the file
 * @spilled: where, of tide_spill_take(); the sum is set
 * @pages: with what
 * @count: how many
 *
 * Context: process; waits for the file system, also until it is not frozen any more.
 * Return: 0, -EIO, also when something before did not reach the disk, -EFBIG when the
 * calling program may write no file of that size, -EINTR, or what the file system says.
 */
int tide_spill_write(struct tide_spill *spill, struct tide_spilled *spilled, struct page **pages,
		     unsigned int count)
{
	loff_t from = spilled->at - TIDE_SPILL_BASE;
	int err = tide_spill_may_write(spill, spilled->at, count);
	unsigned int i;

	for (i = 0; !err && i < count; i++, from += PAGE_SIZE)
		err = tide_spill_write_page(spill, from, pages[i]);
	spilled->sum = tide_spill_sum(pages, count);
	return err;
}

/**
 * tide_spill_keep() - find room for pages, and write them there
 * @spill: the file
 * @spilled: set to where they are then; else its @at stays 0
 * @pages: with what
 * @count: how many
 *
 * Context: process; waits for the file system.
 * Return: 0, -ENOSPC when there are not so many free ones one after the other, or see
 * tide_spill_write().
 */
int tide_spill_keep(struct tide_spill *spill, struct tide_spilled *spilled, struct page **pages,
		    unsigned int count)
{
	int err;

	spilled->at = tide_spill_take(spill, count, false);
	if (!spilled->at)
		return -ENOSPC;
	err = tide_spill_write(spill, spilled, pages, count);
	if (err) {
		tide_spill_give_back(spill, spilled->at, count);
		spilled->at = 0;
	}
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

/* For many pages at once, and not for one after the other: what fails is read later. */
static void tide_spill_ask_disk(struct tide_spill *spill, loff_t from, unsigned int count)
{
	loff_t end = from + ((loff_t)count << PAGE_SHIFT);

	atomic64_inc(&spill->reads);
	for (; from < end; from += TIDE_SPILL_ASK)
		vfs_fadvise(spill->file, from, min_t(loff_t, end - from, TIDE_SPILL_ASK),
			    POSIX_FADV_WILLNEED);
}

/**
 * tide_spill_read() - read pages
 * @spill: the file
 * @spilled: where, and their sum
 * @pages: to be filled
 * @count: how many
 * @cached: only if the guest has them all in memory
 *
 * Context: process; waits for the disk, unless @cached.
 * Return: 0, -EAGAIN when the disk would have to be asked, -EIO, also when something else
 * is there than what was written, or what the file system says.
 */
int tide_spill_read(struct tide_spill *spill, const struct tide_spilled *spilled,
		    struct page **pages, unsigned int count, bool cached)
{
	loff_t from = spilled->at - TIDE_SPILL_BASE;
	unsigned int i;
	int err = 0;

	if (!cached)
		tide_spill_ask_disk(spill, from, count);
	for (i = 0; !err && i < count; i++, from += PAGE_SIZE)
		err = tide_spill_read_page(spill, from, pages[i], cached);
	if (!err && tide_spill_sum(pages, count) != spilled->sum && !tide_broken(APP_SPILL_SUM))
		return -EIO;
	return err;
}
