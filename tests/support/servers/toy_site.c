// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Transactions as a site thread of VoltDB executes them: batches of fragments that pass through one
 * function with its arguments. Between two batches of the first transaction the thread yields its
 * CPU, and is runnable all the time. Between those of the second it sleeps.
 *
 * Begins when it gets a byte on stdin; prints how often it yielded.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAUSES	  10
#define LIMIT_S	  30
#define BATCH_NS  2000000
#define FIRST_ID  (1ULL << 14) /* above the bits of the partition, which is 0 */
#define SECOND_ID (2ULL << 14)

static atomic_bool done;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void compute(double ns)
{
	double end = now_s() + ns / 1e9;

	while (now_s() < end)
		;
}

/* Java_org_voltdb_jni_ExecutionEngine_nativeExecutePlanFragments(), src/ee/voltdbjni.cpp. */
__attribute__((noipa)) int execute_fragments(void *env, void *engine, long pointer, int batch,
					     int fragments, void *ids, void *dependencies,
					     long transaction, long sp_handle, long committed,
					     long unique)
{
	compute(BATCH_NS);
	return 0;
}

static void batch_of(unsigned long long unique, int batch)
{
	execute_fragments(NULL, NULL, 0, batch, 1, NULL, NULL, 0, 0, 0, unique);
}

static void *spin(void *unused)
{
	while (!atomic_load(&done))
		;
	return NULL;
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw; /* without sleeping */
}

static int make_room(void)
{
	double limit = now_s() + LIMIT_S;
	int pauses = 0;

	while (pauses < PAUSES && now_s() < limit) {
		long before = switches();

		sched_yield();
		pauses += switches() > before;
	}
	return pauses;
}

int main(void)
{
	pthread_t other;
	cpu_set_t one;
	char begin;
	int pauses;

	if (read(STDIN_FILENO, &begin, 1) != 1)
		return 1;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one) || pthread_create(&other, NULL, spin, NULL))
		return 1;
	batch_of(FIRST_ID, 0);
	pauses = make_room();
	batch_of(FIRST_ID, 1);
	usleep(1000);
	batch_of(SECOND_ID, 0);
	usleep(1000);
	batch_of(SECOND_ID, 1);
	atomic_store(&done, true);
	pthread_join(other, NULL);
	printf("%d\n", pauses);
	return 0;
}
