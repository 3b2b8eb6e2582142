// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Idle times of cores and packages, from memory that the programs share with the tracer. */
#include "sums.h"

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/counted.h"

struct idle_times {
	struct stream *stream;
	const struct qj_plan *plan;
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	struct qj_idle *cores, *packages; /* by their lowest CPU, written by the kernel */
	size_t bytes;			  /* size of both together */
	/* By a package's lowest CPU: its time asleep up to the window's end, and within it. */
	uint64_t asleep_ns[QJ_MAX_CPUS], in_window_ns[QJ_MAX_CPUS];
};

struct idle_times *idle_times_new(struct qjoule_bpf *skeleton, struct stream *stream,
				  const struct qj_cpu *cpus, unsigned cpu_count)
{
	struct idle_times *times = calloc(1, sizeof(*times));
	size_t page = sysconf(_SC_PAGESIZE);

	if (!times)
		return NULL;
	times->stream = stream;
	times->plan = &skeleton->rodata->plan;
	times->cpus = cpus;
	times->cpu_count = cpu_count;
	times->bytes = bpf_map__max_entries(skeleton->maps.idles) * sizeof(struct qj_idle);
	times->bytes = (times->bytes + page - 1) / page * page;
	times->cores = mmap(NULL, times->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    bpf_map__fd(skeleton->maps.idles), 0);
	if (times->cores == MAP_FAILED) {
		free(times);
		return NULL;
	}
	times->packages = times->cores + times->plan->packages_at;
	return times;
}

void idle_times_free(struct idle_times *times)
{
	if (!times)
		return;
	munmap(times->cores, times->bytes);
	free(times);
}

static bool is_first_of_package(const struct idle_times *times, unsigned cpu)
{
	return times->plan->first_of_package[cpu] == cpu;
}

/* Returns how long a package has slept up to now. A wake-up in between changes `asleep_ns`. */
static uint64_t asleep_at(const struct qj_idle *idle, uint64_t t_ns)
{
	uint64_t asleep, fell, busy;

	do {
		asleep = __atomic_load_n(&idle->asleep_ns, __ATOMIC_ACQUIRE);
		busy = __atomic_load_n(&idle->busy, __ATOMIC_ACQUIRE);
		fell = __atomic_load_n(&idle->fell_ns[idle->turn & 1], __ATOMIC_ACQUIRE);
	} while (__atomic_load_n(&idle->asleep_ns, __ATOMIC_ACQUIRE) != asleep);
	return asleep + (!busy && fell < t_ns ? t_ns - fell : 0);
}

void idle_times_next_window(struct idle_times *times, uint64_t t_ns)
{
	for (unsigned i = 0; i < times->cpu_count; i++) {
		unsigned cpu = times->cpus[i].cpu % QJ_MAX_CPUS;
		uint64_t asleep;

		if (!is_first_of_package(times, cpu))
			continue;
		asleep = asleep_at(&times->packages[cpu], t_ns);
		/* It may have woken between t_ns and now: the next window gets the difference. */
		times->in_window_ns[cpu] =
		    asleep > times->asleep_ns[cpu] ? asleep - times->asleep_ns[cpu] : 0;
		times->asleep_ns[cpu] += times->in_window_ns[cpu];
	}
}

/*
 * Adds idle time up to the window's end of cores or packages that still sleep. Whoever exchanges
 * `from_ns` accounts for it; the sleeps do not change before that.
 */
static void add_lasting(struct qj_idle *idle, struct qj_idle *taken, uint32_t epoch,
			uint64_t end_ns, bool package)
{
	__u64 from = __atomic_load_n(&idle->from_ns, __ATOMIC_ACQUIRE);
	struct qj_idle read = *idle;
	unsigned last = read.turn & 1;

	if (!from || from >= end_ns ||
	    !__atomic_compare_exchange_n(&idle->from_ns, &from, end_ns, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return;
	memcpy(taken->owners, read.owners, sizeof(taken->owners));
	qj_add_tails(taken->tail_ns[epoch & 1][last], taken->tail_ns[epoch & 1][!last],
		     read.fell_ns[last], read.fell_ns[!last], from, end_ns, package);
}

static void send_tails(struct idle_times *times, const struct qj_sums_key *owner,
		       const __u64 tail_ns[QJ_PACKAGE_TAILS], uint64_t t0_ns, uint64_t t1_ns,
		       bool package)
{
	struct qj_aggregate a = sums_aggregate(owner, t0_ns, t1_ns);

	if (!qj_any_tail(tail_ns, package))
		return;
	memcpy(package ? a.package_tail_ns : a.core_tail_ns, tail_ns,
	       qj_tails_of(package) * sizeof(*tail_ns));
	stream_add(times->stream, QJ_BLOCK_AGGREGATE, &a, sizeof(a));
}

static void drain_idle(struct idle_times *times, struct qj_idle *idle, uint32_t epoch,
		       uint64_t t0_ns, uint64_t t1_ns, bool package)
{
	struct qj_idle taken = {0};

	/* Read before the sums: a program that replaces an owner has moved the old one's sums. */
	memcpy(taken.owners, idle->owners, sizeof(taken.owners));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	add_lasting(idle, &taken, epoch, t1_ns, package);
	for (int i = 0; i < 2; i++) {
		__u64 *tail_ns = taken.tail_ns[epoch & 1][i];

		for (int j = 0; j < qj_tails_of(package); j++)
			tail_ns[j] += __atomic_exchange_n(&idle->tail_ns[epoch & 1][i][j], 0,
							  __ATOMIC_ACQ_REL);
		send_tails(times, &taken.owners[i], tail_ns, t0_ns, t1_ns, package);
	}
}

void idle_times_drain(struct idle_times *times, uint32_t epoch, uint64_t t0_ns, uint64_t t1_ns)
{
	for (unsigned i = 0; i < times->cpu_count; i++) {
		unsigned cpu = times->cpus[i].cpu % QJ_MAX_CPUS;
		uint64_t ns = t1_ns > t0_ns ? t1_ns - t0_ns : 0, asleep = times->in_window_ns[cpu];
		struct qj_package_time time = {
		    .t0_ns = t0_ns,
		    .t1_ns = t1_ns,
		    .awake_ns = asleep < ns ? ns - asleep : 0,
		    .package = times->cpus[i].package,
		};

		if (times->plan->first_of_core[cpu] == cpu)
			drain_idle(times, &times->cores[cpu], epoch, t0_ns, t1_ns, false);
		if (!is_first_of_package(times, cpu))
			continue;
		drain_idle(times, &times->packages[cpu], epoch, t0_ns, t1_ns, true);
		stream_add(times->stream, QJ_BLOCK_PACKAGE_TIME, &time, sizeof(time));
	}
}
