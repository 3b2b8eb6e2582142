/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Buffers for decompression, one per CPU. No two programs on a CPU use it at the same time. */
#ifndef QJOULE_INFLATE_BUFFERS_BPF_H
#define QJOULE_INFLATE_BUFFERS_BPF_H

#include "state.bpf.h"

#include "inflate_state.h"

/* An array with one entry per CPU: too large for a per-CPU map. */
struct inflating_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inflate_buffers);
};
extern struct inflating_map inflating SEC(".maps");

static __always_inline struct inflate_buffers *inflate_buffers_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&inflating, &cpu);
}

#endif
