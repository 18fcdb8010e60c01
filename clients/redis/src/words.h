/* SPDX-License-Identifier: Apache-2.0 */
/* Words of commands and options. */
#ifndef TIDEPOOL_REDIS_WORDS_H
#define TIDEPOOL_REDIS_WORDS_H

#include <string.h>
#include <strings.h>

#include "api.h"

static inline int is_text(const char *text, size_t length, const char *word)
{
	return length == strlen(word) && !strncasecmp(text, word, length);
}

/* Is it that word, whatever the case? */
static inline int is_word(const RedisModuleString *argument, const char *word)
{
	size_t length;
	const char *text = RedisModule_StringPtrLen(argument, &length);

	return is_text(text, length, word);
}

/* Is it one of a list of words in small letters that NULL ends? Most are none by their first letter. */
static inline int is_one_of(const RedisModuleString *argument, const char *const *words)
{
	size_t length;
	const char *text = RedisModule_StringPtrLen(argument, &length);
	char first = length ? text[0] | 0x20 : 0;

	while (*words && ((*words)[0] != first || !is_text(text, length, *words)))
		words++;
	return !!*words;
}

#endif /* TIDEPOOL_REDIS_WORDS_H */
