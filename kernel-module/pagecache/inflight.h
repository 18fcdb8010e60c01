/* SPDX-License-Identifier: GPL-2.0-only */
/* Truncations, invalidations and direct writes in progress: inflight.c. */
#ifndef TIDE_INFLIGHT_H
#define TIDE_INFLIGHT_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/types.h>

enum tide_section_kind {
	TIDE_SECTION_TRUNCATE,
	TIDE_SECTION_INVALIDATE,
	TIDE_SECTION_DIRECT_IO,
	TIDE_SECTION_EXCHANGE,
	TIDE_SECTION_UNMOUNT,
	TIDE_SECTION_HAS_PAGE,
	TIDE_SECTION_GET_FOLIOS,
	TIDE_SECTION_SWAP,
	TIDE_SECTION_INVALIDATE_INODE,
};

/* One call in progress that puts of a mapping must not overlap with. */
struct tide_section {
	struct hlist_node hash;
	const void *key;		/* the mapping, or the superblock */
	const void *argument;		/* first argument of the wrapped call */
	struct task_struct *task;
	enum tide_section_kind kind;
	pgoff_t first, last;
};

void tide_section_enter(struct tide_section *s, enum tide_section_kind kind,
			const void *key, const void *argument,
			pgoff_t first, pgoff_t last);
void tide_section_leave(struct tide_section *s);
bool tide_section_mine(enum tide_section_kind kind, const void *key,
		       const void *argument);
void tide_section_enter_write(struct tide_section *s, struct address_space *mapping,
			      const void *argument, pgoff_t first, pgoff_t last);
void tide_gate_bar(const struct address_space *mapping);
void tide_writes_forget(const struct address_space *mapping);
unsigned int tide_writes_noted(void);
bool tide_gate_closed(struct address_space *mapping, pgoff_t first, pgoff_t last);
void tide_gate_begin(void);
bool tide_gate_unsettled(struct inode *inode);
void tide_gate_note(void);
void tide_gate_retire(void);
void tide_gate_wait_empty(void);

#endif /* TIDE_INFLIGHT_H */
