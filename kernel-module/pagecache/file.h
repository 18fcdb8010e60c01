/* SPDX-License-Identifier: GPL-2.0-only */
/* The files of which pages are in the pool: file.c. */
#ifndef TIDE_FILE_H
#define TIDE_FILE_H

#include <linux/fs.h>
#include <linux/types.h>

#include "borrower/catalog_table.h"
#include "borrower/object.h"

struct tide_sequential;

/**
 * struct tide_file - a file of which pages are, or were, in the pool
 * @object: what the pool knows of it; its group is the superblock, its number that
 *	of the inode; it is kept while @mapping is set
 * @volume: the subvolume, where there are such
 * @generation: of the inode
 * @sequential: NULL until it is read with the filter on
 * @mapping: whose a_ops are replaced, or NULL; under the object's lock
 *
 * Known by superblock, subvolume, inode number and generation, so that it
 * outlives the in-memory inode (invariant: never the mount). It is forgotten when
 * nothing of it is in the pool and its inode is not in memory.
 */
struct tide_file {
	struct tide_object object;
	u64 volume;
	u32 generation;
	struct tide_sequential *sequential;
	struct address_space *mapping;
};

static inline struct tide_file *tide_file_of(struct tide_object *object)
{
	return container_of(object, struct tide_file, object);
}

static inline void tide_file_put(struct tide_file *file)
{
	tide_object_put(&file->object);
}

bool tide_object_is_file(const struct tide_object *object);
int tide_files_init(void);
void tide_files_exit(void);
struct tide_file *tide_file_peek(struct inode *inode);
struct tide_file *tide_file_find(struct inode *inode);
struct tide_file *tide_file_find_or_reserve(struct inode *inode);
void tide_file_drop(struct tide_file *file, pgoff_t first, pgoff_t last);

#endif /* TIDE_FILE_H */
