// SPDX-License-Identifier: GPL-2.0-only
/* 6.19, "mm/filemap: Add NUMA mempolicy support to filemap_alloc_folio()" */
#include <linux/pagemap.h>

struct folio *probe(gfp_t gfp)
{
#ifdef TIDE_NEWER
	return filemap_alloc_folio(gfp, 0, NULL);
#else
	return filemap_alloc_folio(gfp, 0);
#endif
}
