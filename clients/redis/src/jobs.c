// SPDX-License-Identifier: Apache-2.0
/* A queue and its threads. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#include "jobs.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static pthread_t *thread;
static unsigned int running;
static int stopping;
static size_t held;	/* bytes of jobs that wait or are being done */

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
	size_t size;

	while ((job = next_job())) {
		size = job->size;
		job->run(job);
		pthread_mutex_lock(&mutex);
		held -= size;
		pthread_mutex_unlock(&mutex);
	}
	return nothing;
}

/**
 * jobs_have_room() - may so much more wait?
 * @size: bytes that a job holds
 */
int jobs_have_room(size_t size)
{
	int has_room;

	pthread_mutex_lock(&mutex);
	has_room = held + size <= JOBS_BYTES;
	pthread_mutex_unlock(&mutex);
	return has_room;
}

/**
 * jobs_add() - have something done
 * @job: it belongs to its run() from here on
 */
void jobs_add(struct job *job)
{
	job->next = NULL;
	pthread_mutex_lock(&mutex);
	held += job->size;
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
 * jobs_start() - have threads, which take no signals: those are the server's
 * @threads: how many, at least one
 *
 * Return: 0, or an errno; then there are none.
 */
int jobs_start(unsigned int threads)
{
	sigset_t all, before;
	int error = 0;

	stopping = 0;
	thread = calloc(threads, sizeof(*thread));
	if (!thread)
		return ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (running < threads && !error) {
		error = pthread_create(&thread[running], NULL, work, NULL);
		running += !error;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		jobs_stop();
	return error;
}
