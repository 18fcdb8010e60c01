/* SPDX-License-Identifier: Apache-2.0 */
/* Words of commands and options. */
#ifndef TIDEPOOL_REDIS_WORDS_H
#define TIDEPOOL_REDIS_WORDS_H

#include <string.h>
#include <strings.h>

#include "api.h"

/* Is it that word, whatever the case? */
static inline int is_word(const RedisModuleString *argument, const char *word)
{
	size_t length;
	const char *text = RedisModule_StringPtrLen(argument, &length);

	return length == strlen(word) && !strncasecmp(text, word, length);
}

/* Is it one of a list that NULL ends? */
static inline int is_one_of(const RedisModuleString *argument, const char *const *words)
{
	while (*words && !is_word(argument, *words))
		words++;
	return !!*words;
}

#endif /* TIDEPOOL_REDIS_WORDS_H */
