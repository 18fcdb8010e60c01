/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages of an application's pool on their way to lenders and back: pages.c. */
#ifndef TIDE_APP_PAGES_H
#define TIDE_APP_PAGES_H

#include <linux/ktime.h>
#include <linux/types.h>

struct page;
struct tide_app_read;
struct tide_object;

int tide_app_pages_write(struct tide_object *object, u64 first, const void __user *from,
			 size_t size, bool waits);
void tide_app_pages_offer(struct tide_object *object, u64 first, struct page **pages,
			  unsigned int count);
int tide_app_page_try_put(struct tide_object *object, u64 index, struct page *page);
int tide_app_buffer_await(void);
bool tide_app_reads_spare(void);
struct tide_app_read *tide_app_pages_ask(struct tide_object *object, u64 first,
					 struct page **pages, unsigned int count);
int tide_app_pages_await(struct tide_app_read *read, ktime_t until, struct page ***pages);
struct page **tide_app_pages_alloc(unsigned int count);
void tide_app_pages_free(struct page **pages, unsigned int count);
bool tide_app_page_is_gone(struct tide_object *object, u64 index);
u64 tide_app_page_hits(void);
void tide_app_pages_exit(void);

#endif /* TIDE_APP_PAGES_H */
