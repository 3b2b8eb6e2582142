/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* inflate.h in BPF programs. */
#ifndef QJOULE_INFLATE_BPF_H
#define QJOULE_INFLATE_BPF_H

#include "inflate_buffers.bpf.h"
#include "inflate.h"

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
