// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of a kept pool: in its spill file, and with a lender if one takes them. So a get
 * needs a lender no more than a put does. It is answered from where that is fastest: by
 * the page cache, by a lender, by the file's disk.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "appmem/kept.h"
#include "appmem/pages.h"
#include "appmem/pool.h"
#include "appmem/spill.h"
#include "base/broken.h"

/* The rest of the last page is zero. */
static int tide_pages_from_user(struct page **pages, const void __user *from, size_t size)
{
	size_t done;

	for (done = 0; done < size; done += PAGE_SIZE) {
		size_t part = min_t(size_t, size - done, PAGE_SIZE);
		void *to = kmap_local_page(*pages++);
		bool failed = copy_from_user(to, from + done, part);

		memset(to + part, 0, PAGE_SIZE - part);
		kunmap_local(to);
		if (failed)
			return -EFAULT;
	}
	return 0;
}

/**
 * tide_kept_write() - keep a value
 * @pool: that has a spill file
 * @index: of its first page; none of its pages was ever used
 * @spilled: set to where it is in the file
 * @from: the value, in the program's memory
 * @size: of the value in bytes, at least one
 *
 * Context: process; waits for the file system, and a moment for lenders.
 * Return: 0 or a negative errno, when the pool has nothing of it: -EFAULT, -ENOMEM, or
 * see tide_spill_keep().
 */
int tide_kept_write(struct tide_app_pool *pool, u64 index, struct tide_spilled *spilled,
		    const void __user *from, size_t size)
{
	unsigned int count = DIV_ROUND_UP(size, PAGE_SIZE);
	struct page **pages = tide_app_pages_alloc(count);
	int err;

	if (!pages)
		return -ENOMEM;
	err = tide_pages_from_user(pages, from, size) ?:
	      tide_spill_keep(pool->spill, spilled, pages, count);
	if (!err)
		tide_app_pages_offer(pool->object, index, pages, count);
	tide_app_pages_free(pages, count);
	return err;
}

static int tide_pool_read_spill(struct tide_app_pool *pool, const struct tide_spilled *spilled,
				unsigned int count, struct page ***pages)
{
	int err;

	if (tide_broken(APP_SPILL))
		return -ENOENT;
	*pages = tide_app_pages_alloc(count);
	if (!*pages)
		return -ENOMEM;
	err = tide_spill_read(pool->spill, spilled, *pages, count, false);
	if (err)
		tide_app_pages_free(*pages, count);
	return err;
}

/**
 * tide_pool_ask() - ask for pages
 * @pool: the pool
 * @index: of the first one
 * @spilled: where they are in its spill file, if it has one
 * @count: how many
 * @asked: to be awaited by tide_pool_await() when this returns 0
 * @waits: for lenders, then
 *
 * Context: process; does not wait for lenders.
 * Return: 0, -ENOMEM, or -ETIME when they are not here and nobody is to wait.
 */
int tide_pool_ask(struct tide_app_pool *pool, u64 index, const struct tide_spilled *spilled,
		  unsigned int count, struct tide_asked *asked, bool waits)
{
	struct page **pages = tide_app_pages_alloc(count);

	*asked = (struct tide_asked) { };
	if (!pages)
		return -ENOMEM;
	if (pool->spill && !tide_spill_read(pool->spill, spilled, pages, count, true)) {
		asked->pages = pages;
		return 0;
	}
	if (!waits) {
		tide_app_pages_free(pages, count);
		return -ETIME;
	}
	asked->read = tide_app_pages_ask(pool->object, index, pages, count);
	return asked->read ? 0 : -ENOMEM;
}

/**
 * tide_pool_await() - have the pages that were asked for
 * @pool: the pool
 * @spilled: as they were asked for
 * @count: likewise
 * @asked: nothing is left of it afterwards
 * @until: when it is too late, in monotonic time; KTIME_MAX: never
 * @pages: set to them when this returns 0, for tide_app_pages_free()
 *
 * What is in the file belongs to a value only as long as the value is there: the caller
 * looks for it anew afterwards.
 *
 * Context: process; waits for lenders, and for the file system.
 * Return: 0, -ENOENT when some page did not come, -ETIME when it is too late, or would be
 * once the disk has been asked, -EINTR, -ENOMEM, or see tide_spill_read().
 */
int tide_pool_await(struct tide_app_pool *pool, const struct tide_spilled *spilled,
		    unsigned int count, struct tide_asked *asked, ktime_t until,
		    struct page ***pages)
{
	int err;

	*pages = asked->pages;
	if (*pages)
		return 0;
	err = tide_app_pages_await(asked->read, until, pages);
	if (err != -ENOENT || !pool->spill)
		return err;
	return until == KTIME_MAX ? tide_pool_read_spill(pool, spilled, count, pages) : -ETIME;
}

/**
 * tide_pool_read() - get pages back
 * @pool: the pool
 * @index: of the first one
 * @spilled: where they are in its spill file, if it has one
 * @count: how many
 * @pages: set to them when this returns 0, for tide_app_pages_free()
 *
 * Context: process; waits for lenders, and for the file system.
 * Return: 0, or see tide_pool_await().
 */
int tide_pool_read(struct tide_app_pool *pool, u64 index, const struct tide_spilled *spilled,
		   unsigned int count, struct page ***pages)
{
	struct tide_asked asked;

	return tide_pool_ask(pool, index, spilled, count, &asked, true) ?:
	       tide_pool_await(pool, spilled, count, &asked, KTIME_MAX, pages);
}
