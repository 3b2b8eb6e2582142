/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view: adds slices to the sums of their owners. A query may begin before its statement is
 * known. What it has used by then is in a row without a shape, and kept with its thread too, so
 * that name_use() can move it to the shape's row.
 */
#ifndef QJOULE_SLICE_SUMS_BPF_H
#define QJOULE_SLICE_SUMS_BPF_H

#include "sums.bpf.h"

/* What was measured over a slice. */
struct measured {
	__u64 counters[QJ_COUNTERS]; /* increments */
	__u64 overlap_ns;
	__u16 counted; /* as in struct qj_segment */
	__u8 valid;
};

static __always_inline void add_counters(struct qj_used *used, const struct measured *m, __u64 ns,
					 __u64 whole)
{
	if (m->valid && m->counted != QJ_WHOLE)
		__sync_fetch_and_add(&used->scaled_ns,
				     qj_scaled(ns, QJ_WHOLE - m->counted, QJ_WHOLE));
	for (int i = 0; i < QJ_COUNTERS; i++) {
		__u64 count;

		if (!(m->valid & (1u << i)))
			continue;
		count = qj_scaled(m->counters[i], ns, whole);
		__sync_fetch_and_add(&used->counters[i], count);
		__sync_fetch_and_add(&used->counted_ns[i], ns);
		if (m->overlap_ns)
			__sync_fetch_and_add(&used->overlap_counters[i],
					     qj_scaled(count, m->overlap_ns, whole));
	}
}

/* `ns` of a slice that is `whole` ns long. `woke`: the idle times that it ended. */
static __always_inline void add_used(struct qj_used *used, __u64 ns, const struct measured *m,
				     __u64 whole, __u8 woke)
{
	__sync_fetch_and_add(&used->cpu_ns, ns);
	if (m->overlap_ns)
		__sync_fetch_and_add(&used->overlap_ns, qj_scaled(m->overlap_ns, ns, whole));
	if (plan.counters)
		add_counters(used, m, ns, whole);
	if (woke & QJ_WOKE_CORE)
		__sync_fetch_and_add(&used->core_wakes, 1);
	if (woke & QJ_WOKE_PACKAGE)
		__sync_fetch_and_add(&used->package_wakes, 1);
}

/*
 * Where the kept use of the running thread's query is added up, which has no shape yet; 0: nowhere.
 * It is kept of one row in one window. What came before stays without a shape.
 */
static __always_inline struct qj_used *kept_unnamed(const struct qj_cpu_state *cpu,
						    const struct qj_sums_key *key, __u32 epoch)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct unnamed_use *kept;

	if (!thread || thread->query != cpu->query)
		return 0;
	kept = &thread->unnamed;
	if (kept->query != cpu->query || kept->epoch != epoch || kept->tags != key->tags ||
	    kept->naming != key->naming || kept->package != key->package) {
		__builtin_memset(&kept->used, 0, sizeof(kept->used));
		kept->query = cpu->query;
		kept->tags = key->tags;
		kept->naming = key->naming;
		kept->package = key->package;
		kept->epoch = epoch;
	}
	return &kept->used;
}

/* Adds `ns` of a slice that is `whole` ns long. */
static __always_inline void add_to_sums(struct qj_cpu_state *cpu, __u32 epoch, __u64 ns,
					const struct measured *m, __u64 whole)
{
	struct qj_sums_key key = {};
	struct qj_used *kept;
	struct qj_sums *row;
	__u8 woke;

	if (IS_EARLY) {
		struct qj_ring_sum sum = {.epoch = epoch, .cpu_ns = ns};

		fill_key(cpu, &sum.key);
		if (m->overlap_ns)
			sum.overlap_ns = qj_scaled(m->overlap_ns, ns, whole);
		if (!send_sum(cpu, &sum, QJ_LOSS_SEGMENT))
			__sync_fetch_and_add(&cpu->lost_ns, ns);
		return;
	}
	fill_key(cpu, &key);
	row = sums_of(cpu, &key, epoch);
	if (!row) {
		count_loss(cpu, QJ_LOSS_SEGMENT);
		__sync_fetch_and_add(&cpu->lost_ns, ns);
		return;
	}
	woke = sums_effects() ? cpu->woke : 0;
	cpu->woke &= ~woke;
	add_used(&row->used, ns, m, whole, woke);
	if (key.owner_kind != QJ_OWNER_QUERY || key.shape)
		return;
	kept = kept_unnamed(cpu, &key, epoch);
	if (kept)
		add_used(kept, ns, m, whole, woke);
}

/* Adds a slice to what its query has used, which may have ended before. */
static __always_inline void add_to_query(const struct qj_cpu_state *cpu, __u64 ns)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread)
		return;
	if (thread->query == cpu->query)
		thread->cpu_ns += ns;
	else if (thread->ended.query == cpu->query)
		thread->ended_cpu_ns += ns;
}

/* Divides a slice that began in the previous window between both windows. */
static __always_inline void sum_slice(struct qj_cpu_state *cpu, __u64 t0, __u64 now,
				      const struct measured *m)
{
	__u32 epoch = control.epoch;
	__u64 edge = control.epoch_ns;
	__u64 whole = now - t0;

	if (plan.samples && cpu->owner_kind == QJ_OWNER_QUERY)
		add_to_query(cpu, whole);
	if (t0 < edge) {
		__u64 before = (now < edge ? now : edge) - t0;

		add_to_sums(cpu, epoch - 1, before, m, whole);
		t0 += before;
	}
	if (t0 < now)
		add_to_sums(cpu, epoch, now - t0, m, whole);
}

#endif
