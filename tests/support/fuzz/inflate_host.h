/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What bpf/core/inflate.h needs on the host. */
#ifndef INFLATE_HOST_H
#define INFLATE_HOST_H

#include "host.h"

static inline __u64 at_most(__u64 n, __u64 max)
{
	return n < max ? n : max;
}

#include "core/inflate.h"

static struct inflate_buffers host_buffers;

static __always_inline bool inflate_copy(__u8 *to, __u64 bytes, const __u8 *from)
{
	memcpy(to, from, bytes);
	return true;
}

static __always_inline void inflate_run(struct inflate_buffers *b)
{
	for (__u32 n = 0; n < QJ_INFLATE_STEPS; n++)
		if (inflate_step(b))
			return;
	abort(); /* it must end by itself */
}

#endif
