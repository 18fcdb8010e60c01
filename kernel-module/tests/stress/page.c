// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define MAGIC		0x7469646570616765ULL
#define MAX_REPORTS	12

enum { W_MAGIC, W_FILE, W_INDEX, W_VERSION, W_PATTERN };

static unsigned long wrong, verified;

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

static uint64_t pattern(uint32_t file, uint64_t index, uint32_t version)
{
	return mix(mix(mix(file) + index) + version);
}

void page_make(struct page *page, uint32_t file, uint64_t index, uint32_t version)
{
	uint64_t base = pattern(file, index, version);

	if (!version) {
		memset(page, 0, sizeof(*page));
		return;
	}
	page->word[W_MAGIC] = MAGIC;
	page->word[W_FILE] = file;
	page->word[W_INDEX] = index;
	page->word[W_VERSION] = version;
	for (size_t i = W_PATTERN; i < PAGE / 8; i++)
		page->word[i] = base + i * 0x9e3779b97f4a7c15ULL;
}

static bool page_is_zero(const struct page *page)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		if (page->word[i])
			return false;
	return true;
}

bool page_is(const struct page *page, uint32_t file, uint64_t index, uint32_t version)
{
	uint64_t base = pattern(file, index, version);

	if (!version)
		return page_is_zero(page);
	if (page->word[W_MAGIC] != MAGIC || page->word[W_FILE] != file ||
	    page->word[W_INDEX] != index || page->word[W_VERSION] != version)
		return false;
	for (size_t i = W_PATTERN; i < PAGE / 8; i++)
		if (page->word[i] != base + i * 0x9e3779b97f4a7c15ULL)
			return false;
	return true;
}

/* What is in the page, for people: the page that it claims to be, and whether it is that wholly. */
static void describe(const struct page *page, char *text, size_t size)
{
	const uint64_t *word = page->word;

	if (page_is_zero(page))
		snprintf(text, size, "zeros");
	else if (word[W_MAGIC] != MAGIC)
		snprintf(text, size, "no page of ours, it begins %016lx %016lx", word[0], word[1]);
	else
		snprintf(text, size, "%s file %08lx index %lu version %lu",
			 page_is(page, word[W_FILE], word[W_INDEX], word[W_VERSION]) ? "all of" : "a damaged",
			 word[W_FILE], word[W_INDEX], word[W_VERSION]);
}

uint32_t page_version(const struct page *page)
{
	return page->word[W_MAGIC] == MAGIC ? page->word[W_VERSION] : 0;
}

void page_wrong(const struct page *page, uint32_t file, uint64_t index, uint32_t version, const char *how)
{
	char found[128];

	if (__sync_fetch_and_add(&wrong, 1) >= MAX_REPORTS)
		return;
	describe(page, found, sizeof(found));
	printf("WRONG PAGE in %s: file %08x index %lu should be version %u, found %s\n",
	       how, file, index, version, found);
}

bool page_check(const struct page *page, uint32_t file, uint64_t index, uint32_t version, const char *how)
{
	__sync_fetch_and_add(&verified, PAGE);
	if (page_is(page, file, index, version))
		return true;
	page_wrong(page, file, index, version, how);
	return false;
}

uint32_t file_id(const char *path)
{
	uint64_t id = 1;

	while (*path)
		id = mix(id + (unsigned char)*path++);
	return id;
}

struct page *pages_alloc(size_t count)
{
	struct page *pages = aligned_alloc(PAGE, count * sizeof(*pages));

	if (!pages)
		die("pages");
	return pages;
}

unsigned long wrong_pages(void)
{
	return wrong;
}

unsigned long bytes_verified(void)
{
	return verified;
}
