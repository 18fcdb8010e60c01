// SPDX-License-Identifier: Apache-2.0
/* A queue and its threads. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "jobs.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static pthread_t *thread;
static unsigned int running;
static int stopping;

static struct job *next_job(void)
{
	struct job *job;

	pthread_mutex_lock(&mutex);
	while (!first && !stopping)
		pthread_cond_wait(&some, &mutex);
	job = first;
	if (job)
		first = job->next;
	if (!first)
		last = &first;
	pthread_mutex_unlock(&mutex);
	return job;
}

static void *work(void *nothing)
{
	struct job *job;

	while ((job = next_job()))
		job->run(job);
	return nothing;
}

/**
 * jobs_add() - have something done
 * @job: it belongs to its run() from here on
 */
void jobs_add(struct job *job)
{
	job->next = NULL;
	pthread_mutex_lock(&mutex);
	*last = job;
	last = &job->next;
	pthread_cond_signal(&some);
	pthread_mutex_unlock(&mutex);
}

/**
 * jobs_stop() - end the threads, when all that was added is done
 */
void jobs_stop(void)
{
	pthread_mutex_lock(&mutex);
	stopping = 1;
	pthread_cond_broadcast(&some);
	pthread_mutex_unlock(&mutex);
	while (running)
		pthread_join(thread[--running], NULL);
	free(thread);
	thread = NULL;
}

/**
 * jobs_start() - have threads
 * @threads: how many, at least one
 *
 * Return: 0, or an errno; then there are none.
 */
int jobs_start(unsigned int threads)
{
	int error = 0;

	stopping = 0;
	thread = calloc(threads, sizeof(*thread));
	if (!thread)
		return ENOMEM;
	while (running < threads && !error) {
		error = pthread_create(&thread[running], NULL, work, NULL);
		running += !error;
	}
	if (error)
		jobs_stop();
	return error;
}
