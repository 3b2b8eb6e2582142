/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where programs inflate: one place for each CPU, which no two programs on it use at a time. */
#ifndef QJOULE_INFLATE_BUFFERS_BPF_H
#define QJOULE_INFLATE_BUFFERS_BPF_H

#include "state.bpf.h"

#include "inflate_state.h"

/* Too large for what the kernel calls a map per CPU. */
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
