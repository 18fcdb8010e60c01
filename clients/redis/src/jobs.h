/* SPDX-License-Identifier: Apache-2.0 */
/* What waits for lenders: threads that do jobs, while the server goes on. */
#ifndef TIDEPOOL_REDIS_JOBS_H
#define TIDEPOOL_REDIS_JOBS_H

/**
 * struct job - something to do
 * @next: the job behind it
 * @run: does it, in a thread of jobs_start()'s
 */
struct job {
	struct job *next;
	void (*run)(struct job *job);
};

int jobs_start(unsigned int threads);
void jobs_stop(void);
void jobs_add(struct job *job);

#endif /* TIDEPOOL_REDIS_JOBS_H */
