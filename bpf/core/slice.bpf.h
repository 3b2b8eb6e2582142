/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Slices of CPU time: opened when a thread is switched in, closed into a segment or a sum. */
#ifndef QJOULE_SLICE_BPF_H
#define QJOULE_SLICE_BPF_H

#include "state.bpf.h"
#include "emit.bpf.h"
#include "sums.bpf.h"

/*
 * Counters that a user asks for beside those of the energy model. If there are none, plan.more is 0
 * and the verifier removes this code from the programs.
 */

/* Index CPU * QJ_MORE + i: counter i of that CPU. */
struct more_counters_map {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, QJ_MAX_CPUS *QJ_MORE);
	__type(key, __u32);
	__type(value, __u32);
};
extern struct more_counters_map more_counters SEC(".maps");

/* Like `read` and `valid` of struct qj_cpu_state. */
struct more_readings {
	struct qj_reading read[QJ_MORE];
	__u64 valid;
};
struct more_readings_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct more_readings);
};
extern struct more_readings_map more_readings SEC(".maps");

/*
 * Reads the further counters at the end of a slice and stores the readings for the next slice.
 * Stores the increments in `out` unless it is 0. Returns the smallest share of the slice for which
 * one of them counted.
 */
static __always_inline __u32 more_since(struct qj_segment_more *out)
{
	__u32 zero = 0, least = QJ_WHOLE, first = bpf_get_smp_processor_id() * QJ_MORE;
	struct more_readings *before = bpf_map_lookup_elem(&more_readings, &zero);
	__u64 readable = 0;

	if (!before) {
		if (out)
			__builtin_memset(out, 0, sizeof(*out));
		return 0;
	}
	for (__u32 i = 0; i < QJ_MORE; i++) {
		struct bpf_perf_event_value value = {};
		__u64 increment = 0;
		__u16 share = 0;

		if (plan.more & (1u << i) &&
		    !bpf_perf_event_read_value(&more_counters, first + i, &value, sizeof(value))) {
			struct qj_reading now = {.counter = value.counter,
						 .enabled_ns = value.enabled,
						 .running_ns = value.running};

			if (before->valid & (1u << i))
				share = qj_counted(&before->read[i], &now, &increment);
			before->read[i] = now;
			readable |= 1u << i;
		}
		if (plan.more & (1u << i) && share < least)
			least = share;
		if (out) {
			out->shares[i] = share;
			out->more[i] = increment;
		}
	}
	before->valid = readable;
	return least;
}

/*
 * Live view on CPUs with SMT: how long the other hardware threads of a core were busy during a
 * slice, from their busy clocks. In recordings the segments show it.
 */

/* IBM POWER has eight threads per core; the verifier needs a bound for the loop. */
#define MAX_CORE_THREADS 8

/* Constant for the verifier, which removes code that this machine or mode does not need. */
static __always_inline bool measures_overlap(void)
{
	return plan.mode == QJ_MODE_LIVE && plan.core_threads > 1;
}

/* Sums the busy times of the core's other CPUs. */
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
 * Returns how long another thread of the core was busy during the slice that ends now (`whole` ns).
 * With more than two threads per core it is capped at `whole`. Starts the next slice.
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

/* ---- slices ---- */

struct counter_map {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, QJ_MAX_CPUS);
	__type(key, __u32);
	__type(value, __u32);
};
extern struct counter_map cycles SEC(".maps");
extern struct counter_map instructions SEC(".maps");
extern struct counter_map llc_misses SEC(".maps");

static __always_inline void counter_since(struct qj_cpu_state *cpu, void *map, __u32 i,
					  struct measured *out, __u8 *readable)
{
	struct bpf_perf_event_value value = {};
	struct qj_reading now;
	__u16 counted;

	if (!(plan.counters & (1u << i)) ||
	    bpf_perf_event_read_value(map, BPF_F_CURRENT_CPU, &value, sizeof(value)))
		return;
	*readable |= 1u << i;
	now.counter = value.counter;
	now.enabled_ns = value.enabled;
	now.running_ns = value.running;
	counted = cpu->valid & (1u << i) ? qj_counted(&cpu->read[i], &now, &out->counters[i]) : 0;
	if (counted) {
		out->valid |= 1u << i;
		if (!out->counted || counted < out->counted)
			out->counted = counted;
	}
	cpu->read[i] = now;
}

/* Reads the counters at the end of a slice, and stores the readings for the next. */
static __always_inline void counters_since(struct qj_cpu_state *cpu, struct measured *out)
{
	__u8 readable = 0;

	counter_since(cpu, &cycles, 0, out, &readable);
	counter_since(cpu, &instructions, 1, out, &readable);
	counter_since(cpu, &llc_misses, 2, out, &readable);
	cpu->valid = readable;
}

static __always_inline void count_counter_loss(struct qj_cpu_state *cpu, const struct measured *m)
{
	if (m->valid != plan.counters)
		count_loss(cpu, QJ_LOSS_COUNTER);
	if (m->valid && m->counted != QJ_WHOLE)
		count_loss(cpu, QJ_LOSS_MULTIPLEXED);
}

static __always_inline void fill_segment(struct qj_segment *s, const struct qj_slice_label *label,
					 __u64 t0, __u64 now)
{
	s->t0_ns = t0;
	s->t1_ns = now;
	s->query = label->owner_kind == QJ_OWNER_QUERY ? label->query : 0;
	s->pid = label->pid;
	s->tgid = label->tgid;
	s->cpu = bpf_get_smp_processor_id();
	s->server = label->server;
	s->owner_kind = label->owner_kind;
	s->valid = 0;
	s->counted = 0;
}

static __always_inline void fill_counted(struct qj_segment_counters *s,
					 const struct qj_slice_label *label, __u64 t0, __u64 now,
					 const struct measured *m)
{
	fill_segment(&s->segment, label, t0, now);
	s->segment.valid = m->valid;
	s->segment.counted = m->counted;
	for (int i = 0; i < QJ_COUNTERS; i++)
		s->counters[i] = m->counters[i];
}

static __always_inline bool emit_plain(const struct qj_slice_label *label, __u64 t0, __u64 now)
{
	struct qj_ring_segment *r = reserve(sizeof(*r));

	if (!r)
		return false;
	r->head.block = QJ_BLOCK_SEGMENT;
	r->head.text_bytes = 0;
	fill_segment(&r->segment, label, t0, now);
	submit(r);
	return true;
}

static __always_inline bool emit_with_counters(const struct qj_slice_label *label, __u64 t0,
					       __u64 now, const struct measured *m)
{
	struct qj_ring_segment_counters *r = reserve(sizeof(*r));

	if (!r)
		return false;
	r->head.block = QJ_BLOCK_SEGMENT_COUNTERS;
	r->head.text_bytes = 0;
	fill_counted(&r->segment, label, t0, now, m);
	submit(r);
	return true;
}

static __always_inline void emit_segment(struct qj_cpu_state *cpu,
					 const struct qj_slice_label *label, __u64 t0, __u64 now,
					 const struct measured *m)
{
	if (plan.counters ? emit_with_counters(label, t0, now, m) : emit_plain(label, t0, now))
		return;
	count_loss(cpu, QJ_LOSS_SEGMENT);
	__sync_fetch_and_add(&cpu->lost_ns, now - t0);
}

/*
 * Like account_slice(), with further counters. These are too many for the stack, so room in the
 * ring is reserved first and they are read into it. They are read even if there is no room.
 */
static __always_inline void
account_with_more(struct qj_cpu_state *cpu, const struct qj_slice_label *label, __u64 t0, __u64 now)
{
	bool owned = label->owner_kind != QJ_OWNER_IDLE && t0 && t0 < now;
	struct qj_ring_segment_more *r = owned ? reserve(sizeof(*r)) : 0;
	struct measured m = {};
	__u32 least;

	if (!r) {
		counters_since(cpu, &m);
		more_since(0);
		if (!owned)
			return;
		count_loss(cpu, QJ_LOSS_SEGMENT);
		__sync_fetch_and_add(&cpu->lost_ns, now - t0);
		return;
	}
	counters_since(cpu, &m);
	least = more_since(&r->segment);
	count_counter_loss(cpu, &m);
	if (least != QJ_WHOLE && (!m.valid || m.counted == QJ_WHOLE))
		count_loss(cpu, QJ_LOSS_MULTIPLEXED);
	r->head.block = QJ_BLOCK_SEGMENT_MORE;
	r->head.text_bytes = 0;
	fill_counted(&r->segment.counted, label, t0, now, &m);
	submit(r);
}

/*
 * Accounts for the time from t0 to now, once, and takes the next slice's first readings. t0 is 0 if
 * there is no slice yet.
 */
static __always_inline void account_slice(struct qj_cpu_state *cpu,
					  const struct qj_slice_label *label, __u64 t0, __u64 now)
{
	struct measured m = {};

	if (plan.more) {
		account_with_more(cpu, label, t0, now);
		return;
	}
	if (plan.counters)
		counters_since(cpu, &m);
	if (measures_overlap())
		m.overlap_ns = overlap_since(cpu, now, now - t0);
	if (label->owner_kind == QJ_OWNER_IDLE || !t0 || t0 >= now)
		return;
	if (plan.counters)
		count_counter_loss(cpu, &m);
	if (plan.mode == QJ_MODE_LIVE)
		sum_slice(cpu, label, t0, now, &m);
	else
		emit_segment(cpu, label, t0, now, &m);
}

#ifdef QJ_EARLY
/* Without an atomic exchange. Only the tick interrupts, and it leaves the slice alone meanwhile. */
static __always_inline __u64 exchange_start(struct qj_cpu_state *cpu, __u64 now)
{
	__u64 t0;

	*(volatile __u8 *)&cpu->exchanging = 1;
	t0 = *(volatile __u64 *)&cpu->t0_ns;
	*(volatile __u64 *)&cpu->t0_ns = now;
	*(volatile __u8 *)&cpu->exchanging = 0;
	return t0;
}
#else
static __always_inline __u64 exchange_start(struct qj_cpu_state *cpu, __u64 now)
{
	return __sync_lock_test_and_set(&cpu->t0_ns, now);
}
#endif

/* Starts the next slice at `now` under the same label. Returns when the last slice began. */
static __always_inline __u64 restart_slice(struct qj_cpu_state *cpu, __u64 now)
{
	/* A tick may interrupt here: one exchange decides who accounts for the time. */
	__u64 t0 = exchange_start(cpu, now);

	/* A tick after `now` was read has already accounted for the time up to the tick. */
	if (t0 > now)
		cpu->t0_ns = t0;
	if (!t0)
		cpu->since_ns = now;
	return t0;
}

/* The same with interrupts off: nothing can interrupt, so nothing needs to be atomic. */
static __always_inline __u64 restart_slice_irqs_off(struct qj_cpu_state *cpu, __u64 now)
{
	__u64 t0 = cpu->t0_ns;

	cpu->t0_ns = now;
	if (!t0)
		cpu->since_ns = now;
	return t0;
}

#endif
