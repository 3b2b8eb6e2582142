/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * One CPU's busy time as a single 64-bit word, so that others can read it atomically while it
 * changes. While the CPU is idle, the word is the busy time so far. While it is busy, the word is
 * the offset to add to the current time to get the busy time, with the lowest bit set. It is
 * written only when the CPU changes between busy and idle. Times are ns; all arithmetic is modulo
 * 2^63. Used by the BPF programs and by the tracer.
 */
#ifndef QJ_BUSY_CLOCK_H
#define QJ_BUSY_CLOCK_H

#include "qjoule.h"

#define QJ_CLOCK_RUNS 1ULL

/* Busy time up to `t_ns`, which must not be before the clock was set. */
static inline __u64 qj_busy_at(__u64 clock, __u64 t_ns)
{
	return ((clock >> 1) + (clock & QJ_CLOCK_RUNS ? t_ns : 0)) & (~0ULL >> 1);
}

/* Busy time between two clock readings; negative if the second reading is the earlier one. */
static inline __s64 qj_busy_between(__u64 before_ns, __u64 now_ns)
{
	return (__s64)((now_ns - before_ns) << 1) >> 1;
}

/* The clock of a CPU that becomes busy or idle at `now_ns`. */
static inline __u64 qj_busy_set(__u64 clock, int busy, __u64 now_ns)
{
	__u64 so_far = qj_busy_at(clock, now_ns);

	return busy ? (so_far - now_ns) << 1 | QJ_CLOCK_RUNS : so_far << 1;
}

#endif /* QJ_BUSY_CLOCK_H */
