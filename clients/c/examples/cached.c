// SPDX-License-Identifier: Apache-2.0
/* Prints what a command has printed in the last SECONDS, and runs it if that is gone:  cached SECONDS 'COMMAND' */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidepool.h>

static char said[TIDEPOOL_VALUE_MAX + 1];

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "cached: %s: %s\n", what, why);
	exit(1);
}

/* What a command prints goes to said; how many bytes that is. */
static size_t run(const char *command)
{
	FILE *output = popen(command, "r");
	size_t size = output ? fread(said, 1, sizeof(said), output) : 0;

	if (!output || pclose(output) || size > TIDEPOOL_VALUE_MAX)
		fail(command, "it does not end well, or prints more than 2 MiB");
	return size;
}

/* The same, of the last so many milliseconds. What a lender did not keep is made again: it is a cache. */
static size_t cached(tidepool_pool *pool, const char *command, uint64_t ms)
{
	ssize_t size = tidepool_get(pool, command, strlen(command), said, sizeof(said));

	if (size >= 0)
		return size;
	if (errno != ENOENT)
		fail(command, tidepool_strerror(errno));
	size = run(command);
	if (tidepool_put_for(pool, command, strlen(command), said, size, ms))
		fprintf(stderr, "cached: not kept: %s\n", tidepool_strerror(errno));
	return size;
}

int main(int argc, char **argv)
{
	char *end;
	long seconds = argc == 3 ? strtol(argv[1], &end, 10) : 0;
	tidepool_pool *pool;

	if (seconds <= 0 || *end) {
		fprintf(stderr, "cached SECONDS 'COMMAND': SECONDS is a number above 0\n");
		return 2;
	}
	pool = tidepool_open("cached", TIDEPOOL_EPHEMERAL, NULL);
	if (!pool)
		fail("pool cached", tidepool_strerror(errno));
	fwrite(said, 1, cached(pool, argv[2], seconds * 1000ull), stdout);
	tidepool_close(pool);
	return 0;
}
