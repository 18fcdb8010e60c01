// SPDX-License-Identifier: GPL-2.0
/* Memory for a program of the guest's own: how long each first touch of a page takes. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stress.h"

/* stress anon MIB [hold=0]: touches that much memory, verifies it, and keeps it for `hold` seconds. */
int mode_anon(const char *mib)
{
	long pages = strtol(mib, NULL, 0) * PAGES_PER_MIB;
	struct latency latency = { .count = 0 };
	double start = now(), seconds;
	struct page *memory;

	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	for (long i = 0; i < pages; i++) {
		double touch = now();

		memory[i].word[0] = i;
		latency_add(&latency, now() - touch);
	}
	seconds = now() - start;
	for (long i = 0; i < pages; i++)
		if (memory[i].word[0] != (uint64_t)i || memory[i].word[1] != 0)
			page_wrong(&memory[i], 0, i, 0, "anonymous memory");
	printf("{\"mode\": \"anon\", \"mib\": %ld, \"seconds\": %.3f, ", pages / PAGES_PER_MIB, seconds);
	latency_print(&latency);
	printf(", \"wrong_pages\": %lu, \"errors\": 0}\n", wrong_pages());
	fflush(stdout);
	sleep(option("hold", 0));
	return verdict();
}
