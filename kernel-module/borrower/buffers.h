/* SPDX-License-Identifier: GPL-2.0-only */
/* Buffers for pages on their way out: buffers.c. */
#ifndef TIDE_BUFFERS_H
#define TIDE_BUFFERS_H

#include <linux/list.h>
#include <linux/types.h>

struct tide_buffer;	/* outgoing.h */

int tide_buffers_init(void);
int tide_buffers_acquire(void);
void tide_buffers_relinquish(void);
void tide_buffers_refit(void);
void tide_buffers_count(unsigned int *total, unsigned int *free);
bool tide_buffers_take(unsigned int count, struct list_head *taken);
void tide_buffer_free(struct tide_buffer *buffer);
void tide_buffer_release(struct tide_buffer *buffer);

#endif /* TIDE_BUFFERS_H */
