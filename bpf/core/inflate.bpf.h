/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Binds inflate.h to BPF programs, with one set of buffers per CPU. No two programs on a CPU use
 * them at the same time.
 */
#ifndef QJOULE_INFLATE_BPF_H
#define QJOULE_INFLATE_BPF_H

#include "state.bpf.h"
#include "inflate.h"

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

static __always_inline bool inflate_copy(__u8 *to, __u64 bytes, const __u8 *from)
{
	return !bpf_probe_read_kernel(to, bytes, from);
}

struct inflate_walk {
	struct inflate_buffers *buffers;
};

static long inflate_once(__u32 i, struct inflate_walk *walk)
{
	return inflate_step(walk->buffers);
}

static __always_inline void inflate_run(struct inflate_buffers *b)
{
	struct inflate_walk walk = {.buffers = b};

	bpf_loop(QJ_INFLATE_STEPS, inflate_once, &walk, 0);
}

#endif
