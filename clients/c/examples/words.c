// SPDX-License-Identifier: Apache-2.0
/* Counts the words of its input in a pool that others may look into:  words POOL < TEXT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidepool.h>

static void fail(const char *what)
{
	fprintf(stderr, "words: %s: %s\n", what, tidepool_strerror(errno));
	exit(1);
}

static void count(tidepool_pool *pool, const char *word)
{
	unsigned long number = 0;

	if (tidepool_get(pool, word, strlen(word), &number, sizeof(number)) < 0 && errno != ENOENT)
		fail(word);
	number++;
	while (tidepool_put(pool, word, strlen(word), &number, sizeof(number)))
		if (errno != EINTR)
			fail(word);
}

static int show(const void *word, size_t size, void *pool)
{
	unsigned long number;

	if (tidepool_get(pool, word, size, &number, sizeof(number)) >= 0)
		printf("%lu %.*s\n", number, (int)size, (const char *)word);
	return 0;
}

int main(int argc, char **argv)
{
	struct tidepool_limits limits = { .mode = 0644 };
	tidepool_pool *pool;
	char word[251];

	if (argc != 2) {
		fprintf(stderr, "words POOL < TEXT\n");
		return 2;
	}
	pool = tidepool_open(argv[1], TIDEPOOL_EPHEMERAL, &limits);
	if (!pool)
		fail(argv[1]);
	while (scanf("%250s", word) == 1)
		count(pool, word);
	if (tidepool_each(pool, show, pool))
		fail(argv[1]);
	tidepool_close(pool);
	return 0;
}
