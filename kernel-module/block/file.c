// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device-mapper target that is the blocks of a file, for swap:
 *
 *	0 SECTORS tidepool-file FILE
 *
 * The file system says once where they are, as it does to swapon, and leaves them there.
 * From then on requests go straight to the disk: unlike behind a loop device, nothing
 * is allocated and no file system takes part. The disk itself cannot be asked for, as
 * others are: the file system has it.
 *
 * A module of its own, which needs none of the others: lenders come, go and are
 * upgraded in front of it while what lies on it is in use.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/rbtree.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/swap.h>

#define TIDE_FILE_SHIFT		(PAGE_SHIFT - SECTOR_SHIFT)
#define TIDE_FILE_SECTORS	(PAGE_SIZE >> SECTOR_SHIFT)

/**
 * struct tide_extent - neighbours on the disk
 * @first: sector of the device; the next extent's is where this one ends
 * @disk: sector of the disk
 */
struct tide_extent {
	sector_t first, disk;
};

/**
 * struct tide_file - a file that is a device
 * @file: open as long as the device is there, so its file system stays mounted
 * @pinned: no block of it moves, and nobody writes to it
 * @disk: what its file system says that it lies on; nobody else has to do with it here
 * @count: of extents
 * @extent: those, and one more that begins where the device ends
 * @path: as in the table
 */
struct tide_file {
	struct file *file;
	bool pinned;
	struct dm_dev disk;
	unsigned int count;
	struct tide_extent *extent;
	char path[];
};

/* ------------------------------------------------------------------ */
/* requests							       */
/* ------------------------------------------------------------------ */

/* The last that begins no later. */
static const struct tide_extent *tide_extent_at(const struct tide_file *file, sector_t sector)
{
	unsigned int low = 0, high = file->count;

	while (high - low > 1) {
		unsigned int middle = low + (high - low) / 2;

		if (file->extent[middle].first <= sector)
			low = middle;
		else
			high = middle;
	}
	return &file->extent[low];
}

/* A request ends with the extent; device-mapper comes back with the rest of it. */
static void tide_file_redirect(const struct tide_file *file, struct bio *bio, sector_t sector)
{
	const struct tide_extent *extent = tide_extent_at(file, sector);
	sector_t left = extent[1].first - sector;

	if (bio_sectors(bio) > left)
		dm_accept_partial_bio(bio, left);
	bio->bi_iter.bi_sector = extent->disk + (sector - extent->first);
}

static int tide_file_map(struct dm_target *ti, struct bio *bio)
{
	const struct tide_file *file = ti->private;

	bio_set_dev(bio, file->disk.bdev);
	if (bio_sectors(bio))	/* a flush has none */
		tide_file_redirect(file, bio, dm_target_offset(ti, bio->bi_iter.bi_sector));
	return DM_MAPIO_REMAPPED;
}

static int tide_file_iterate(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct tide_file *file = ti->private;
	const struct tide_extent *extent;
	int ret = 0;

	for (extent = file->extent; !ret && extent < file->extent + file->count; extent++)
		ret = fn(ti, &file->disk, extent->disk, extent[1].first - extent->first, data);
	return ret;
}

/* ------------------------------------------------------------------ */
/* where the file is						       */
/* ------------------------------------------------------------------ */

static struct inode *tide_file_inode(const struct tide_file *file)
{
	return file->file->f_mapping->host;
}

static void tide_swap_free(struct swap_info_struct *swap)
{
	struct swap_extent *one, *next;

	rbtree_postorder_for_each_entry_safe(one, next, &swap->swap_extent_root, rb_node)
		kfree(one);
	kfree(swap);
}

/* In the order of the file; the file system has left out what is no whole page on the disk. */
static int tide_file_copy(struct tide_file *file, const struct swap_info_struct *swap,
			  sector_t sectors)
{
	const struct rb_root *root = &swap->swap_extent_root;
	struct tide_extent *extent;
	struct rb_node *node;

	for (node = rb_first(root); node; node = rb_next(node))
		file->count++;
	file->extent = kvmalloc_array(file->count + 1, sizeof(*extent), GFP_KERNEL);
	if (!file->extent)
		return -ENOMEM;
	extent = file->extent;
	for (node = rb_first(root); node; node = rb_next(node)) {
		const struct swap_extent *one = rb_entry(node, struct swap_extent, rb_node);

		extent->first = (sector_t)one->start_page << TIDE_FILE_SHIFT;
		extent->disk = one->start_block << TIDE_FILE_SHIFT;
		extent++;
	}
	extent->first = sectors;
	return 0;
}

static void tide_file_release(const struct tide_file *file)
{
	struct address_space *mapping = file->file->f_mapping;

	if (mapping->a_ops->swap_deactivate)
		mapping->a_ops->swap_deactivate(file->file);
}

/*
 * Inode locked. Returns what is wrong, or NULL: the blocks stay where they are. A file system
 * that may have several disks says itself on which the file is.
 */
static char *tide_file_ask(struct tide_file *file, struct swap_info_struct *swap,
			   sector_t sectors, int *err)
{
	struct address_space *mapping = file->file->f_mapping;
	sector_t span;

	swap->swap_file = file->file;
	swap->bdev = mapping->host->i_sb->s_bdev;
	swap->max = sectors >> TIDE_FILE_SHIFT;
	*err = mapping->a_ops->swap_activate(swap, file->file, &span);
	if (*err < 0)
		return "FILE has holes or shared blocks, or on btrfs no chattr +C: see the log";
	*err = -EINVAL;
	if (!swap->bdev || swap->max != sectors >> TIDE_FILE_SHIFT) {
		tide_file_release(file);
		return "FILE has fewer whole blocks of 4 KiB on one disk than that";
	}
	*err = tide_file_copy(file, swap, sectors);
	if (*err) {
		tide_file_release(file);
		return "there is no memory";
	}
	file->disk.bdev = swap->bdev;
	return NULL;
}

/* ------------------------------------------------------------------ */
/* the file is held, and let go					       */
/* ------------------------------------------------------------------ */

/*
 * No write, truncation, defragmentation or removal gets past S_SWAPFILE; what was under
 * way before is waited for. Who has the file open to write may have it mapped, and that
 * is past it. Inode locked.
 */
static int tide_file_close_to_others(struct inode *inode)
{
	int err;

	inode->i_flags |= S_SWAPFILE;
	inode_dio_wait(inode);
	err = filemap_write_and_wait(inode->i_mapping);
	if (!err && atomic_read(&inode->i_writecount) > 1)
		err = -ETXTBSY;
	if (!err)
		err = invalidate_inode_pages2(inode->i_mapping);
	if (err)
		inode->i_flags &= ~S_SWAPFILE;
	return err;
}

/* Inode locked. Returns what is wrong, or NULL. */
static char *tide_file_pin_locked(struct tide_file *file, struct swap_info_struct *swap,
				  sector_t sectors, int *err)
{
	struct inode *inode = tide_file_inode(file);
	char *wrong;

	*err = -EBUSY;
	if (IS_SWAPFILE(inode))
		return "FILE is used for swap already";
	*err = -EINVAL;
	if (i_size_read(inode) >> SECTOR_SHIFT < sectors)
		return "FILE is smaller than that";
	wrong = tide_file_ask(file, swap, sectors, err);
	if (wrong)
		return wrong;
	*err = tide_file_close_to_others(inode);
	if (*err) {
		tide_file_release(file);
		return "FILE is open to be written, or in use otherwise";
	}
	file->pinned = true;
	return NULL;
}

static char *tide_file_pin(struct tide_file *file, sector_t sectors, int *err)
{
	struct swap_info_struct *swap = kzalloc(sizeof(*swap), GFP_KERNEL);
	struct inode *inode = tide_file_inode(file);
	char *wrong;

	*err = -ENOMEM;
	if (!swap)
		return "there is no memory";
	inode_lock(inode);
	wrong = tide_file_pin_locked(file, swap, sectors, err);
	inode_unlock(inode);
	tide_swap_free(swap);
	return wrong;
}

/* What was read of it meanwhile is not what its disk has now. */
static void tide_file_unpin(struct tide_file *file)
{
	struct inode *inode = tide_file_inode(file);

	inode_lock(inode);
	invalidate_inode_pages2(inode->i_mapping);
	inode->i_flags &= ~S_SWAPFILE;
	tide_file_release(file);
	inode_unlock(inode);
}

static void tide_file_free(struct tide_file *file)
{
	if (file->pinned)
		tide_file_unpin(file);
	if (file->file)
		fput(file->file);
	kvfree(file->extent);
	kfree(file);
}

/* ------------------------------------------------------------------ */
/* the table							       */
/* ------------------------------------------------------------------ */

/* A table is words; and what it shows can be loaded again, from wherever. */
static bool tide_path_is_plain(const char *path)
{
	return *path == '/' && !strpbrk(path, " \t\n\\");
}

/* What is no file is not opened: a device would begin to do something. */
static bool tide_path_is_file(const char *name)
{
	struct path path;
	bool is_file;

	if (kern_path(name, LOOKUP_FOLLOW, &path))
		return false;
	is_file = d_is_reg(path.dentry);
	path_put(&path);
	return is_file;
}

/*
 * Only what lies on a disk of its file system, which knows of swap; and as it is there:
 * nothing of what the file system does on the way takes place.
 */
static bool tide_file_is_suited(const struct tide_file *file)
{
	const struct inode *inode = tide_file_inode(file);

	return inode == file_inode(file->file) && S_ISREG(inode->i_mode) &&
	       (inode->i_sb->s_type->fs_flags & FS_REQUIRES_DEV) &&
	       inode->i_mapping->a_ops->swap_activate &&
	       !IS_ENCRYPTED(inode) && !IS_VERITY(inode) && !IS_DAX(inode);
}

/* Returns what is wrong, or NULL. */
static char *tide_file_fill(struct tide_file *file, sector_t sectors, int *err)
{
	struct file *opened;

	*err = -EINVAL;
	if (sectors % TIDE_FILE_SECTORS || sectors >> TIDE_FILE_SHIFT > UINT_MAX)
		return "SECTORS must be a multiple of 8, and no more than 16 TiB";
	if (!tide_path_is_plain(file->path) || !tide_path_is_file(file->path))
		return "FILE must be the path of a file, from / on and without blanks";
	opened = filp_open(file->path, O_RDWR | O_LARGEFILE, 0);
	*err = PTR_ERR_OR_ZERO(opened);
	if (*err)
		return "FILE cannot be opened to be written";
	file->file = opened;
	*err = -EOPNOTSUPP;
	if (!tide_file_is_suited(file))
		return "FILE is encrypted, verified or on a file system without swap files";
	return tide_file_pin(file, sectors, err);
}

static int tide_file_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct tide_file *file;
	size_t size;
	int err;

	if (argc != 1) {
		ti->error = "the argument must be: FILE";
		return -EINVAL;
	}
	size = strlen(argv[0]) + 1;
	file = kzalloc(struct_size(file, path, size), GFP_KERNEL);
	if (!file) {
		ti->error = "there is no memory";
		return -ENOMEM;
	}
	strscpy(file->path, argv[0], size);
	ti->error = tide_file_fill(file, ti->len, &err);
	if (ti->error) {
		tide_file_free(file);
		return err;
	}
	ti->private = file;
	ti->num_flush_bios = 1;
	ti->num_discard_bios = 1;
	ti->num_write_zeroes_bios = 1;
	return 0;
}

static void tide_file_dtr(struct dm_target *ti)
{
	tide_file_free(ti->private);
}

static void tide_file_status(struct dm_target *ti, status_type_t type, unsigned int flags,
			     char *result, unsigned int maxlen)
{
	const struct tide_file *file = ti->private;
	size_t sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		DMEMIT("extents %u", file->count);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s", file->path);
		break;
	case STATUSTYPE_IMA:
		DMEMIT_TARGET_NAME_VERSION(ti->type);
		DMEMIT(",file=%s;", file->path);
		break;
	}
}

static struct target_type tide_file_target = {
	.name = "tidepool-file",
	.version = { 1, 0, 0 },
	.module = THIS_MODULE,
	.ctr = tide_file_ctr,
	.dtr = tide_file_dtr,
	.map = tide_file_map,
	.status = tide_file_status,
	.iterate_devices = tide_file_iterate,
};

static int __init tide_file_init(void)
{
	return dm_register_target(&tide_file_target);
}

static void __exit tide_file_exit(void)
{
	dm_unregister_target(&tide_file_target);
}

module_init(tide_file_init);
module_exit(tide_file_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(TIDEPOOL_VERSION);
MODULE_AUTHOR("Tidepool");
MODULE_DESCRIPTION("Block device that is the blocks of a file, for swap");
MODULE_ALIAS("dm-tidepool-file");
