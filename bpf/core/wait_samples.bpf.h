/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Recordings with stacks: draws the waits whose stack is taken where they begin. Each CPU has about
 * plan.waits draws of each kind of wait per plan.wait_period_ns, by the rule of sample.bpf.h, so
 * all waits are drawn where there are fewer. Which are drawn depends on chance and on earlier
 * counts alone. A timer would prefer waits that follow long ones.
 */
#ifndef QJOULE_WAIT_SAMPLES_BPF_H
#define QJOULE_WAIT_SAMPLES_BPF_H

#include "sample.bpf.h"

/* By enum qj_wait. */
struct wait_counts_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, QJ_WAITS);
	__type(key, __u32);
	__type(value, struct draw_counts);
};
extern struct wait_counts_map wait_counts SEC(".maps");

/*
 * In stacks.bpf.c: sends the stack of the thread, which was current when it went to sleep and still
 * is. Its CPU already has the label of the next one.
 */
extern int sample_wait(struct qj_cpu_state *cpu, struct thread_state *thread);

/*
 * Returns true if the wait of this thread, which begins at `now`, is drawn. After what may be the
 * last reply it is not: the thread may wait for its next request.
 */
static __always_inline bool draw_wait(struct thread_state *thread, __u64 now)
{
	struct thread_waits *waits = &thread->waits;
	__u32 kind = waits->kind;
	struct draw_counts *counts;

	if (kind == QJ_WAIT_RUN_QUEUE || thread->end_ns || !thread->off_ns)
		return false;
	counts = bpf_map_lookup_elem(&wait_counts, &kind);
	if (!counts)
		return false;
	count_call(counts, now / plan.wait_period_ns + 1);
	waits->probability = probability_of(counts, plan.waits, false);
	if (waits->probability && bpf_get_prandom_u32() >= waits->probability)
		return false;
	waits->drawn_ns = now;
	waits->drawn_kind = QJ_WAITS;
	return true;
}

#endif
