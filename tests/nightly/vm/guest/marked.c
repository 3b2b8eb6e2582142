// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A server whose threads call the agent's markers, as Java code in a Cassandra does, where no JVM
 * fits: `marked TIMES SECOND_TIMES`. Each request has a task on another thread. The first statement
 * is sent with each request, the second is one that was prepared.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qjoule.h"

#define WORK	 20000
#define SESSION	 7
#define PREPARED 9

/* agent/jni/marker.c */
void qjoule_request_begins(const char *text, uint64_t bytes, uint64_t statement, uint64_t session,
			   uint64_t what);
void qjoule_request_ends(void);
void qjoule_task_queued(uint64_t request);
void qjoule_task_begins(uint64_t request);
void qjoule_task_ends(uint64_t request);

static pthread_barrier_t queued, done;
static uint64_t request; /* 0: there are no more */

static void work(void)
{
	for (volatile int i = 0; i < WORK; i++)
		;
}

static void *tasks(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&queued);
		if (!request)
			return unused;
		qjoule_task_begins(request);
		work();
		qjoule_task_ends(request);
		pthread_barrier_wait(&done);
	}
}

static void serve(const char *text, uint64_t statement, int times)
{
	for (int i = 0; i < times; i++) {
		qjoule_request_begins(text, strlen(text), statement, SESSION,
				      1 << 8 | QJ_COMMAND_QUERY);
		work();
		qjoule_task_queued(++request);
		pthread_barrier_wait(&queued);
		pthread_barrier_wait(&done);
		qjoule_request_ends();
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 3)
		return 2;
	pthread_barrier_init(&queued, NULL, 2);
	pthread_barrier_init(&done, NULL, 2);
	pthread_create(&thread, NULL, tasks, NULL);
	serve("select m_light from t where id = 5", 0, atoi(argv[1]));
	serve("select m_heavy from t where id = ?", PREPARED, atoi(argv[2]));
	request = 0;
	pthread_barrier_wait(&queued);
	return pthread_join(thread, NULL);
}
