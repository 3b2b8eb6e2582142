/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view on CPUs with SMT: how long the other hardware threads of a core were busy during a
 * slice, from their busy clocks. Recordings do not need this: their segments show it.
 */
#ifndef QJOULE_OVERLAP_BPF_H
#define QJOULE_OVERLAP_BPF_H

#include "state.bpf.h"

/* IBM POWER has eight threads per core; the verifier needs a bound for the loop. */
#define MAX_CORE_THREADS 8

/* A constant for the verifier: it removes code that this machine or mode does not need. */
static __always_inline bool measures_overlap(void)
{
	return plan.mode == QJ_MODE_LIVE && plan.core_threads > 1;
}

/* The sum of the busy times of the core's other CPUs. */
static __always_inline __u64 other_threads_busy_ns(__u64 now)
{
	__u32 self = bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1), other = self;
	__u64 busy = 0;

	for (__u32 i = 1; i < MAX_CORE_THREADS && i < plan.core_threads; i++) {
		other = plan.next_thread[other] & (QJ_MAX_CPUS - 1);
		if (other == self)
			break;
		busy += qj_busy_at(*(volatile __u64 *)&cpus[other].busy_clock, now);
	}
	return busy;
}

/*
 * The time within the slice that ends now (`whole` ns long) in which another thread of the core was
 * busy. With more than two threads per core it is capped at `whole`. Starts the next slice.
 */
static __always_inline __u64 overlap_since(struct qj_cpu_state *cpu, __u64 now, __u64 whole)
{
	__u64 busy = other_threads_busy_ns(now);
	__s64 overlap = qj_busy_between(cpu->threads_busy_ns, busy);

	cpu->threads_busy_ns = busy;
	/* Clocks are read a moment before or after they are set: the other CPU's may be ahead. */
	if (overlap < 0)
		return 0;
	return (__u64)overlap < whole ? (__u64)overlap : whole;
}

#endif
