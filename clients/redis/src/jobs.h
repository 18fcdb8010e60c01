/* SPDX-License-Identifier: Apache-2.0 */
/* What waits for lenders: threads that do jobs, while the server goes on. */
#ifndef TIDEPOOL_REDIS_JOBS_H
#define TIDEPOOL_REDIS_JOBS_H

#include <stddef.h>

#define JOBS_BYTES	(64u << 20)	/* of all that waits; clients that go away leave theirs */

/**
 * struct job - something to do
 * @next: the job behind it
 * @size: of what it holds, in bytes
 * @run: does it, in a thread of jobs_start()'s
 */
struct job {
	struct job *next;
	size_t size;
	void (*run)(struct job *job);
};

int jobs_start(unsigned int threads);
void jobs_stop(void);
int jobs_have_room(size_t size);
void jobs_add(struct job *job);

#endif /* TIDEPOOL_REDIS_JOBS_H */
