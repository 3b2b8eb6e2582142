/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records into the ring buffers, and their loss. */
#ifndef QJOULE_EMIT_BPF_H
#define QJOULE_EMIT_BPF_H

#include "state.bpf.h"

/* One ring for a few CPUs: producers of one ring take turns on a spin lock. */
struct ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};
struct rings_map {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, QJ_MAX_RINGS);
	__type(key, __u32);
	__array(values, struct ring_map);
};
extern struct rings_map rings SEC(".maps");

static __always_inline void *reserve(__u32 bytes)
{
	__u32 index = bpf_get_smp_processor_id() & (plan.rings - 1);
	void *ring = bpf_map_lookup_elem(&rings, &index);

	return ring ? bpf_ringbuf_reserve(ring, bytes, 0) : 0;
}

/* The tracer wakes up by itself once a window: a wake-up per record would cost the traced server.
 */
static __always_inline void submit(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#endif
