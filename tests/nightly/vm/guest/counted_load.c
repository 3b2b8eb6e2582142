/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A load that measures itself: it computes on one CPU for a given CPU time, and prints as JSON when
 * it did and its CPU time by the kernel's clock. usage: counted_load CPU CPU_MS
 */
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CHUNK	      20000
#define NS_PER_MS     1000000u
#define NS_PER_SECOND 1000000000ull

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t cpu_ns)
{
	uint64_t end_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) + cpu_ns;
	volatile uint64_t x = 1;

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns)
		for (unsigned i = 0; i < CHUNK; i++)
			x = x * 6364136223846793005u + 1442695040888963407u;
}

int main(int argc, char **argv)
{
	int cpu = argc > 2 ? atoi(argv[1]) : -1;
	uint64_t t0_ns, cpu0_ns, cpu_ns;
	cpu_set_t set;

	if (cpu < 0)
		return 2;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("counted_load: sched_setaffinity");
		return 1;
	}
	t0_ns = now_ns(CLOCK_MONOTONIC);
	cpu0_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	compute(strtoull(argv[2], NULL, 10) * NS_PER_MS);
	cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu0_ns;
	printf("{\"pid\": %d, \"cpu\": %d, \"t0_ns\": %" PRIu64 ", \"t1_ns\": %" PRIu64
	       ", \"cpu_ns\": %" PRIu64 "}\n",
	       getpid(), cpu, t0_ns, now_ns(CLOCK_MONOTONIC), cpu_ns);
	return 0;
}
