// SPDX-License-Identifier: GPL-2.0-only
/* 6.10, "mm: Provide a means of invalidation without using launder_folio" */
#include <linux/pagemap.h>

#ifdef TIDE_NEWER
int probe(struct inode *inode, bool flush, loff_t start, loff_t end)
{
	return filemap_invalidate_inode(inode, flush, start, end);
}
#else
struct probe *filemap_invalidate_inode(void);	/* contradicts any other */
#endif
