// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/tidepool, as programs see it: uapi/tidepool.h. Each descriptor has one pool, or
 * none yet; reading it lists the pools that have a name.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cred.h>
#include <linux/device.h>
#include <linux/fs.h>
#if __has_include("linux/io_uring/cmd.h")
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#include "appmem/figures.h"
#include "appmem/front.h"
#include "appmem/get.h"
#include "appmem/holes.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/times.h"
#include "appmem/value.h"

#define TIDE_GETS_MAX		16	/* gets of a batch that are under way at once, */
#define TIDE_GETS_PAGES		512	/* and pages of theirs, but for the last one's */
#define TIDE_KEYS_BUFFER	(64 * 1024)	/* bytes of keys that are collected at once */

/* What a descriptor has: @pool is set once. */
struct tide_app_file {
	struct tide_app_pool *pool;
	struct mutex mutex;	/* one at a time sets it */
};

static struct tide_app_file *tide_app_file_of(struct file *file)
{
	return ((struct seq_file *)file->private_data)->private;
}

/* ------------------------------------------------------------------ */
/* calls							       */
/* ------------------------------------------------------------------ */

static int tide_app_copy_key(u64 address, u32 size, u8 *bytes, struct tide_key *key)
{
	if (!size || size > TIDEPOOL_KEY_MAX)
		return -EINVAL;
	if (copy_from_user(bytes, u64_to_user_ptr(address), size))
		return -EFAULT;
	*key = (struct tide_key) { .bytes = bytes, .size = size };
	return 0;
}

static bool tide_app_is_get(u32 what)
{
	return what == TIDEPOOL_GET || what == TIDEPOOL_TRY_GET;
}

static int tide_app_may(struct file *file, u32 what)
{
	bool reads = tide_app_is_get(what) || what == TIDEPOOL_EXISTS;

	return file->f_mode & (reads ? FMODE_READ : FMODE_WRITE) ? 0 : -EBADF;
}

/* What does not wait leaves holes to those who do: where there are many, nothing is put. */
static int tide_app_put(struct tide_app_pool *pool, const struct tide_key *key,
			const struct tidepool_call *call)
{
	struct tide_put put = {
		.key = key,
		.from = u64_to_user_ptr(call->value),
		.size = call->value_size,
		.expire_ms = call->expire_ms,
		.waits = call->what == TIDEPOOL_PUT,
	};
	u64 began = tide_times_begin();
	int err;

	if (put.size > TIDEPOOL_VALUE_MAX)
		return -E2BIG;
	if (!put.waits && (pool->spill || tide_holes_wait(pool)))
		return -EAGAIN;
	err = tide_value_put(pool, &put);
	if (put.waits)
		tide_holes_fill(pool);
	if (!err)
		tide_times_took(&pool->times->put, began);
	return err;
}

/* The rest, once its key is known. */
static int tide_app_do(struct tide_app_pool *pool, const struct tide_key *key,
		       struct tidepool_call *call)
{
	switch (call->what) {
	case TIDEPOOL_PUT:
	case TIDEPOOL_TRY_PUT:
		return tide_app_put(pool, key, call);
	case TIDEPOOL_DELETE:
		return tide_value_delete(pool, key);
	case TIDEPOOL_EXISTS:
		return tide_value_exists(pool, key, &call->value_size);
	default:
		return -EINVAL;
	}
}

/* ------------------------------------------------------------------ */
/* a call in two parts, between which others are begun		       */
/* ------------------------------------------------------------------ */

/**
 * struct tide_app_call - a call that is being made
 * @call: as the program has it
 * @want: of a get
 * @began: when
 * @bytes: of its key
 */
struct tide_app_call {
	struct tidepool_call call;
	struct tide_want want;
	u64 began;
	u8 bytes[TIDEPOOL_KEY_MAX];
};

/**
 * struct tide_app_batch - the calls of an ioctl
 * @file: the descriptor
 * @pool: what it has
 * @until: when it is too late for a tried get, in monotonic time; 0: to wait at all
 */
struct tide_app_batch {
	struct file *file;
	struct tide_app_pool *pool;
	ktime_t until;
};

/* Is it a get with which nothing is wrong: begun, and to be ended or dropped? */
static bool tide_app_wants(const struct tide_app_call *one)
{
	return !one->call.result && tide_app_is_get(one->call.what);
}

/*
 * Copies a call and begins it, if it is a get. Whatever is wrong with it is its result; an
 * error is that it cannot be made.
 */
static int tide_app_begin(const struct tide_app_batch *batch, struct tide_app_call *one,
			  struct tidepool_call __user *at)
{
	struct tidepool_call *call = &one->call;
	struct tide_want *want = &one->want;

	if (signal_pending(current))
		return -EINTR;
	if (copy_from_user(call, at, sizeof(*call)))
		return -EFAULT;
	one->began = tide_times_begin();
	call->result = tide_app_may(batch->file, call->what) ?:
		       tide_app_copy_key(call->key, call->key_size, one->bytes, &want->key);
	if (!tide_app_wants(one))
		return 0;
	want->to = u64_to_user_ptr(call->value);
	want->room = call->value_size;
	want->waits = call->what == TIDEPOOL_GET || (batch->until && tide_app_reads_spare());
	tide_want_begin(batch->pool, want);
	return 0;
}

static int tide_app_end_get(const struct tide_app_batch *batch, struct tide_app_call *one)
{
	bool tried = one->call.what == TIDEPOOL_TRY_GET;
	int err = tide_want_end(batch->pool, &one->want, tried ? batch->until : KTIME_MAX);

	one->call.value_size = one->want.found.size;
	if (!err)
		tide_times_took(&batch->pool->times->get, one->began);
	return err == -ETIME ? -EAGAIN : err;
}

/* Returns whether it has a result: 0, or a negative errno. */
static int tide_app_end(const struct tide_app_batch *batch, struct tide_app_call *one,
			struct tidepool_call __user *at)
{
	struct tidepool_call *call = &one->call;

	if (tide_app_wants(one))
		call->result = tide_app_end_get(batch, one);
	else if (!call->result)
		call->result = tide_app_do(batch->pool, &one->want.key, call);
	if (call->result == -EINTR)
		return -EINTR;
	return put_user(call->value_size, &at->value_size) ?: put_user(call->result, &at->result);
}

static int tide_app_call(const struct tide_app_batch *batch, struct tidepool_call __user *at)
{
	struct tide_app_call one;

	return tide_app_begin(batch, &one, at) ?: tide_app_end(batch, &one, at);
}

/* ------------------------------------------------------------------ */
/* many calls							       */
/* ------------------------------------------------------------------ */

/* Is it a get? One that cannot be read is none. */
static bool tide_app_gets_next(struct tidepool_call __user *at)
{
	u32 what;

	return !get_user(what, &at->what) && tide_app_is_get(what);
}

/* Begins gets, as many as follow each other and may be under way; returns how many were begun. */
static int tide_app_gets_begin(const struct tide_app_batch *batch, struct tide_app_call *calls,
			       struct tidepool_call __user *at, int most, int *err)
{
	unsigned int pages = 0;
	int begun = 0;

	while (begun < most && pages < TIDE_GETS_PAGES && tide_app_gets_next(at + begun)) {
		*err = tide_app_begin(batch, &calls[begun], at + begun);
		if (*err)
			break;
		if (tide_app_wants(&calls[begun]))
			pages += tide_want_pages(&calls[begun].want);
		begun++;
	}
	return begun;
}

/* Whoever begins has to end, or to drop, all of them. */
static void tide_app_gets_drop(struct tide_app_call *calls, int from, int to)
{
	for (; from < to; from++)
		if (tide_app_wants(&calls[from]))
			tide_want_drop(&calls[from].want);
}

/*
 * Makes gets together; returns how many have a result, 0 if the next call is none, or a
 * negative errno.
 */
static int tide_app_gets(const struct tide_app_batch *batch, struct tide_app_call *calls,
			 struct tidepool_call __user *at, int most)
{
	int err = 0, done, begun = tide_app_gets_begin(batch, calls, at, most, &err);

	for (done = 0; done < begun; done++) {
		err = tide_app_end(batch, &calls[done], at + done);
		if (err)
			break;
	}
	tide_app_gets_drop(calls, done + 1, begun);
	return done ?: err;
}

/* Likewise some calls, of any kind. */
static int tide_app_some(const struct tide_app_batch *batch, struct tide_app_call *calls,
			 struct tidepool_call __user *at, int left)
{
	int made = calls ? tide_app_gets(batch, calls, at, min(left, TIDE_GETS_MAX)) : 0;

	return made ?: tide_app_call(batch, at) ?: 1;
}

static int tide_app_all(const struct tide_app_batch *batch, struct tidepool_call __user *at,
			int count)
{
	struct tide_app_call *calls = NULL;
	int done, made = 0;

	if (count > 1)	/* without memory they are made one by one */
		calls = kmalloc_array(min(count, TIDE_GETS_MAX), sizeof(*calls),
				      GFP_KERNEL_ACCOUNT);
	for (done = 0; done < count; done += made) {
		made = tide_app_some(batch, calls, at + done, count - done);
		if (made < 0)
			break;
	}
	kfree(calls);
	return done ?: made;
}

static long tide_app_calls(struct file *file, struct tide_app_pool *pool, void __user *argument)
{
	struct tide_app_batch batch = { .file = file, .pool = pool };
	struct tidepool_calls calls;

	if (copy_from_user(&calls, argument, sizeof(calls)))
		return -EFAULT;
	if (calls.count > TIDEPOOL_CALLS_MAX)
		return -EINVAL;
	if (calls.wait_us)
		batch.until = ktime_add_us(ktime_get(), calls.wait_us);
	return tide_app_all(&batch, u64_to_user_ptr(calls.calls), calls.count);
}

/* 6.8, with a header of its own: the whole entry of the ring. */
static struct tidepool_uring tide_app_uring(const struct io_uring_cmd *command)
{
#if __has_include("linux/io_uring/cmd.h")
	const void *payload = command->sqe->cmd;
#else
	const void *payload = command->cmd;
#endif

	return *(const struct tidepool_uring *)payload;
}

/* One call, by io_uring: one of the ring's workers makes it, as it may have to wait. */
static int tide_app_uring_cmd(struct io_uring_cmd *command, unsigned int flags)
{
	/* It is whole when it is seen: pairs with tide_app_open_pool(). */
	struct tide_app_pool *pool = smp_load_acquire(&tide_app_file_of(command->file)->pool);
	struct tide_app_batch batch = { .file = command->file, .pool = pool };
	struct tidepool_uring uring = tide_app_uring(command);

	if (command->cmd_op != TIDEPOOL_URING_CALL)
		return -ENOTTY;
	if (uring.reserved)
		return -EINVAL;
	if (!pool)
		return -ENXIO;
	if (flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	return tide_app_call(&batch, u64_to_user_ptr(uring.call));
}

/* ------------------------------------------------------------------ */
/* keys, stats							       */
/* ------------------------------------------------------------------ */

static int tide_app_collect(struct tide_app_pool *pool, struct tidepool_keys *keys,
			    const struct tide_key *after)
{
	unsigned int size = min_t(unsigned int, keys->size, TIDE_KEYS_BUFFER);
	void *buffer = kvmalloc(size, GFP_KERNEL_ACCOUNT);
	int err = 0;

	if (!buffer)
		return -ENOMEM;
	keys->count = tide_value_keys(pool, after, buffer, size, &keys->used);
	if (copy_to_user(u64_to_user_ptr(keys->buffer), buffer, keys->used))
		err = -EFAULT;
	kvfree(buffer);
	return err;
}

static long tide_app_keys(struct file *file, struct tide_app_pool *pool, void __user *argument)
{
	struct tide_key after = { };
	u8 bytes[TIDEPOOL_KEY_MAX];
	struct tidepool_keys keys;
	int err;

	if (!(file->f_mode & FMODE_READ))
		return -EBADF;
	if (copy_from_user(&keys, argument, sizeof(keys)))
		return -EFAULT;
	if (keys.size < TIDEPOOL_KEY_MAX + 1)
		return -EINVAL;
	err = keys.after_size ? tide_app_copy_key(keys.after, keys.after_size, bytes, &after) : 0;
	err = err ?: tide_app_collect(pool, &keys, &after);
	if (!err && copy_to_user(argument, &keys, sizeof(keys)))
		err = -EFAULT;
	return err;
}

static long tide_app_stats(struct file *file, struct tide_app_pool *pool, void __user *argument)
{
	struct tidepool_stats stats;

	if (!(file->f_mode & FMODE_READ))
		return -EBADF;
	tide_app_pool_stats(pool, &stats);
	return copy_to_user(argument, &stats, sizeof(stats)) ? -EFAULT : 0;
}

/* ------------------------------------------------------------------ */
/* descriptors							       */
/* ------------------------------------------------------------------ */

static unsigned int tide_app_access(const struct file *file)
{
	return (file->f_mode & FMODE_READ ? MAY_READ : 0) |
	       (file->f_mode & FMODE_WRITE ? MAY_WRITE : 0);
}

static long tide_app_open_pool(struct file *file, void __user *argument)
{
	struct tide_app_file *own = tide_app_file_of(file);
	unsigned int access = tide_app_access(file);
	struct tide_app_pool *pool;
	struct tidepool_open how;
	long err = 0;

	if (!access)	/* opened with O_ACCMODE: for neither */
		return -EBADF;
	if (copy_from_user(&how, argument, sizeof(how)))
		return -EFAULT;
	mutex_lock(&own->mutex);
	if (own->pool) {
		err = -EBUSY;
	} else {
		pool = tide_app_pool_open(&how, access);
		err = PTR_ERR_OR_ZERO(pool);
		if (!err)
			/* Pairs with tide_app_ioctl(). */
			smp_store_release(&own->pool, pool);
	}
	mutex_unlock(&own->mutex);
	return err;
}

static long tide_app_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	/* It is whole when it is seen: pairs with tide_app_open_pool(). */
	struct tide_app_pool *pool = smp_load_acquire(&tide_app_file_of(file)->pool);
	void __user *at = (void __user *)argument;

	if (command == TIDEPOOL_IOC_OPEN)
		return tide_app_open_pool(file, at);
	if (_IOC_TYPE(command) != _IOC_TYPE(TIDEPOOL_IOC_OPEN))
		return -ENOTTY;
	if (!pool)
		return -ENXIO;
	switch (command) {
	case TIDEPOOL_IOC_CALL:
		return tide_app_calls(file, pool, at);
	case TIDEPOOL_IOC_KEYS:
		return tide_app_keys(file, pool, at);
	case TIDEPOOL_IOC_STATS:
		return tide_app_stats(file, pool, at);
	case TIDEPOOL_IOC_UNLINK:
		return tide_app_pool_unlink(pool);
	default:
		return -ENOTTY;
	}
}

/* For who opened the device, whoever reads from it. */
static int tide_app_show(struct seq_file *seq, void *nothing)
{
	const struct cred *reader = override_creds(seq->file->f_cred);

	tide_app_pools_show(seq);
	revert_creds(reader);
	return 0;
}

static int tide_app_open(struct inode *inode, struct file *file)
{
	struct tide_app_file *own = kzalloc(sizeof(*own), GFP_KERNEL_ACCOUNT);
	int err;

	if (!own)
		return -ENOMEM;
	mutex_init(&own->mutex);
	file->private_data = NULL;	/* misc has set it */
	err = single_open(file, tide_app_show, own);
	if (err)
		kfree(own);
	return err;
}

static int tide_app_release(struct inode *inode, struct file *file)
{
	struct tide_app_file *own = tide_app_file_of(file);

	if (own->pool)
		tide_app_pool_close(own->pool);
	mutex_destroy(&own->mutex);
	kfree(own);
	return single_release(inode, file);
}

static const struct file_operations tide_app_operations = {
	.owner = THIS_MODULE,
	.open = tide_app_open,
	.release = tide_app_release,
	.read = seq_read,
	.llseek = seq_lseek,
	.unlocked_ioctl = tide_app_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = tide_app_uring_cmd,
};

/* For root: it tells of all users' pools. */
static ssize_t stats_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return tide_figures_show(page);
}
static DEVICE_ATTR_ADMIN_RO(stats);

static ssize_t latency_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return tide_figures_show_times(page);
}
static DEVICE_ATTR_ADMIN_RO(latency);

static struct attribute *tide_app_attrs[] = {
	&dev_attr_stats.attr,
	&dev_attr_latency.attr,
	NULL,
};
ATTRIBUTE_GROUPS(tide_app);

static struct miscdevice tide_app_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tidepool",
	.fops = &tide_app_operations,
	.mode = 0600,
	.groups = tide_app_groups,
};

static int __init tide_app_init(void)
{
	int err = tide_front_init();

	if (err)
		return err;
	err = misc_register(&tide_app_device);
	if (err)
		tide_front_exit();
	return err;
}

static void __exit tide_app_exit(void)
{
	misc_deregister(&tide_app_device);
	tide_app_pools_exit();
	tide_app_pages_exit();
	tide_front_exit();
}

module_init(tide_app_init);
module_exit(tide_app_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(TIDEPOOL_VERSION);
MODULE_AUTHOR("Tidepool");
MODULE_DESCRIPTION("/dev/tidepool: values of programs in another machine's unused memory");
