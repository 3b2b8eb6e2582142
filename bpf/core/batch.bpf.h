/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Batches of segments, one per CPU (struct qj_batch). Only the context-switch program writes them,
 * with interrupts off, so a record costs a few stores. The tracer may read a batch at any time: it
 * compares the generation before and after, and `used` counts only complete records.
 */
#ifndef QJOULE_BATCH_BPF_H
#define QJOULE_BATCH_BPF_H

#include "slice.bpf.h"

#define BATCH_AGE_NS 20000000ULL

struct batches_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, QJ_MAX_CPUS);
	__type(key, __u32);
	__type(value, struct qj_batch);
};
extern struct batches_map batches SEC(".maps");

/* Makes stores visible in this order to a reader on another CPU. */
#if defined(__TARGET_ARCH_x86) || defined(QJ_EARLY)
#define store_barrier() barrier() /* x86 stores in program order */
#else
static __always_inline void store_barrier(void)
{
	__u64 scratch = 0;

	__sync_fetch_and_add(&scratch, 1); /* a BPF atomic that returns a value is a full barrier */
}
#endif

struct batch_walk {
	struct qj_cpu_state *cpu;
	struct qj_batch *batch;
	__u64 first;
};

static long batch_lost_record(__u32 i, struct batch_walk *walk)
{
	struct qj_batch *batch = walk->batch;
	/* In the map, not on the stack: the verifier then does not track the values. */
	__u64 at = batch->cursor;
	const struct qj_segment *segment;

	if (at >= batch->used)
		return 1;
	segment = (const struct qj_segment *)(batch->bytes +
					      at_most(at, QJ_BATCH_BYTES - QJ_BATCH_RECORD_MAX));
	if (at >= walk->first) {
		count_loss(walk->cpu, QJ_LOSS_SEGMENT);
		walk->cpu->lost_ns += segment->t1_ns - segment->t0_ns;
		if (segment->counted)
			count_loss(walk->cpu, QJ_LOSS_QUERY);
	}
	batch->cursor = at + sizeof(*segment) + (segment->counted ? sizeof(struct qj_query) : 0);
	return 0;
}

/* Counts as lost the records that the tracer has not yet taken. */
static __always_inline void batch_lost(struct qj_cpu_state *cpu, struct qj_batch *batch)
{
	__u64 taken = batch->taken;
	struct batch_walk walk = {
	    .cpu = cpu,
	    .batch = batch,
	    .first = taken >> 16 == batch->generation ? taken & 0xffff : 0,
	};

	batch->cursor = 0;
	bpf_loop(QJ_BATCH_BYTES / sizeof(struct qj_segment), batch_lost_record, &walk, 0);
}

static __always_inline void batch_send(struct qj_cpu_state *cpu, struct qj_batch *batch)
{
	__u64 bytes = __builtin_offsetof(struct qj_batch, bytes) + batch->used;

	if (!output(batch, bytes, sizeof(*batch)))
		batch_lost(cpu, batch);
	batch->used = 0;
	store_barrier();
	batch->generation++;
	store_barrier();
}

static __always_inline void batch_segment(struct qj_cpu_state *cpu, __u64 t0, __u64 now,
					  struct thread_state *thread)
{
	__u32 index = bpf_get_smp_processor_id();
	struct qj_batch *batch = bpf_map_lookup_elem(&batches, &index);
	struct qj_segment *segment;
	__u64 used;

	if (!batch) {
		count_loss(cpu, QJ_LOSS_SEGMENT);
		cpu->lost_ns += now - t0;
		return;
	}
	/* One more record always fits: otherwise the batch would have been sent. */
	used = at_most(batch->used, QJ_BATCH_BYTES - QJ_BATCH_RECORD_MAX);
	segment = (struct qj_segment *)(batch->bytes + used);
	fill_segment(segment, &cpu->label, t0, now);
	if (thread && thread->ended.query) {
		segment->counted = QJ_BATCH_QUERY_FOLLOWS;
		*(struct qj_query *)(segment + 1) = thread->ended;
		thread->ended.query = 0;
		used += sizeof(struct qj_query);
	}
	if (!batch->used) {
		batch->oldest_ns = now;
		batch->cpu = index;
		batch->head.block = QJ_RING_BATCH;
	}
	used += sizeof(*segment);
	store_barrier();
	batch->used = used;
	if (used > QJ_BATCH_BYTES - QJ_BATCH_RECORD_MAX || now - batch->oldest_ns > BATCH_AGE_NS)
		batch_send(cpu, batch);
}

#endif
