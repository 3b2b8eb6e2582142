/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A CPU's clock of its busy time, in one word that others can read whole while it changes: while
 * the CPU is idle the busy time so far; while it is busy what has to be added to the time of day
 * to get that, and the lowest bit set. It is written only where busy and idle meet. Times are ns,
 * all arithmetic is modulo 2^63. For the programs and for the tracer.
 */
#ifndef QJ_BUSY_CLOCK_H
#define QJ_BUSY_CLOCK_H

#include "qjoule.h"

#define QJ_CLOCK_RUNS 1ULL

/* Busy time up to `t_ns`, which is not before the clock was set. */
static inline __u64 qj_busy_at(__u64 clock, __u64 t_ns)
{
	return ((clock >> 1) + (clock & QJ_CLOCK_RUNS ? t_ns : 0)) & (~0ULL >> 1);
}

/* Busy time between two readings of clocks; negative if the second is of an earlier time. */
static inline __s64 qj_busy_between(__u64 before_ns, __u64 now_ns)
{
	return (__s64)((now_ns - before_ns) << 1) >> 1;
}

/* The clock of a CPU that from `now_ns` on is busy, or idle. */
static inline __u64 qj_busy_set(__u64 clock, int busy, __u64 now_ns)
{
	__u64 so_far = qj_busy_at(clock, now_ns);

	return busy ? (so_far - now_ns) << 1 | QJ_CLOCK_RUNS : so_far << 1;
}

#endif /* QJ_BUSY_CLOCK_H */
