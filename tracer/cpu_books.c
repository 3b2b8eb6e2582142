// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Busy and idle time of each CPU, from the clocks that the programs keep. */
#include "pump.h"

#include <time.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

struct cpu_books {
	uint64_t t_ns;
	uint64_t busy_ns;
	uint64_t idle_ns;
};

/*
 * Busy and idle time of a CPU up to now, including the open slice: on an idle CPU it may last for a
 * second, since nothing wakes the CPU. Reads the time between two equal readings of the clock, so
 * the time is not before the clock was set and sums never step back.
 */
static struct cpu_books cpu_books(const struct qj_cpu_state *state)
{
	struct cpu_books books;
	uint64_t clock, since, all;

	do {
		clock = __atomic_load_n(&state->busy_clock, __ATOMIC_ACQUIRE);
		since = __atomic_load_n(&state->since_ns, __ATOMIC_ACQUIRE);
		books.t_ns = now_ns();
	} while (__atomic_load_n(&state->busy_clock, __ATOMIC_ACQUIRE) != clock);
	all = since && since < books.t_ns ? books.t_ns - since : 0;
	books.busy_ns = qj_busy_at(clock, books.t_ns);
	books.idle_ns = all > books.busy_ns ? all - books.busy_ns : 0;
	return books;
}

void cpu_books_report(const struct probes *probes, struct stream *stream, const struct qj_cpu *cpus,
		      unsigned cpu_count)
{
	for (unsigned i = 0; i < cpu_count; i++) {
		unsigned cpu = cpus[i].cpu % QJ_MAX_CPUS;
		struct cpu_books books = cpu_books(&probes->skeleton->bss->cpus[cpu]);
		struct qj_cpu_time time = {
		    .t_ns = books.t_ns,
		    .busy_ns = books.busy_ns,
		    .idle_ns = books.idle_ns,
		    .cpu = cpu,
		};

		stream_add(stream, QJ_BLOCK_CPU_TIME, &time, sizeof(time));
	}
}

uint64_t cpu_books_busy_ns(void *ctx, unsigned package)
{
	const struct probes *probes = ctx;
	const struct qj_plan *plan = &probes->skeleton->rodata->plan;
	uint64_t busy = 0;

	for (unsigned cpu = 0; cpu < QJ_MAX_CPUS; cpu++)
		if (plan->package_of[cpu] == package)
			busy += cpu_books(&probes->skeleton->bss->cpus[cpu]).busy_ns;
	return busy;
}
