/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Counters that a user asks for beside those of the energy model. If there are none, plan.more is 0
 * and the verifier removes this code from the programs.
 */
#ifndef QJOULE_MORE_COUNTERS_BPF_H
#define QJOULE_MORE_COUNTERS_BPF_H

#include "state.bpf.h"

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
 * Reads the further counters at the end of a slice and keeps the readings for the next slice.
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

#endif
