// SPDX-License-Identifier: GPL-2.0-only
/* Files that end: the inode is deleted, the mount is gone, or there is no peer any more. */
#include <linux/fs.h>

#include "borrower/catalog_table.h"
#include "borrower/object.h"
#include "pagecache/file.h"
#include "pagecache/kill.h"
#include "pagecache/mapping.h"

/* Nothing is put, recorded or hooked from here on. Returns false if that was so before. */
static bool tide_file_end(struct tide_file *file)
{
	unsigned long flags;
	bool alive;

	tide_object_lock(&file->object, flags);
	tide_unhook_mapping(file);
	alive = tide_object_end(&file->object);
	tide_object_unlock(&file->object, flags);
	return alive;
}

/**
 * tide_file_kill() - forget a file: its inode is deleted or its mount is gone
 * @file: the descriptor; the caller has a reference
 *
 * Context: process.
 */
void tide_file_kill(struct tide_file *file)
{
	bool known = tide_file_end(file);

	tide_file_drop(file, 0, ULONG_MAX);
	if (known)
		tide_object_forget(&file->object);
}

static void tide_kill(struct tide_object *object, void *unused)
{
	if (tide_object_is_file(object))
		tide_file_kill(tide_file_of(object));
}

/**
 * tide_files_kill() - forget all files of a file system, or all
 * @sb: being unmounted, or NULL
 *
 * Context: process.
 */
void tide_files_kill(const struct super_block *sb)
{
	tide_table_for_each(sb, tide_kill, NULL);
}
