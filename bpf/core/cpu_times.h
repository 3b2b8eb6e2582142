/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Busy and idle times of CPUs in ns, as the BPF programs, the tracer and tests compute them. */
#ifndef QJ_CPU_TIMES_H
#define QJ_CPU_TIMES_H

#include "qjoule.h"

/*
 * One CPU's busy time as a single 64-bit word, so that others can read it atomically while it
 * changes. While the CPU is idle, the word is the busy time so far. While it is busy, the word is
 * the offset to add to the current time to get the busy time, with the lowest bit set. It is
 * written only when the CPU changes between busy and idle. All arithmetic is modulo 2^63.
 */
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

/*
 * How idle time is divided between the owners whose sleeps began it: docs/model.md, "Effects", and
 * attribution/sweep/tails.c, which does the same for recordings.
 */
#define QJ_LONGEST_TAIL_NS (QJ_TAIL_NS << (QJ_TAILS - 1))

/* Of [from, to), the time less than `length_ns` after `since_ns`, which is not after `from_ns`. */
static inline __u64 qj_within(__u64 from_ns, __u64 to_ns, __u64 since_ns, __u64 length_ns)
{
	__u64 after = from_ns - since_ns, ns = to_ns - from_ns;
	__u64 most = after < length_ns ? length_ns - after : 0;

	return ns < most ? ns : most;
}

/*
 * Adds the idle time [from, to) to the sums of the sleep that began it, and of the sleep before:
 * where both tails last, each has half, to the ns.
 */
static inline __attribute__((always_inline)) void qj_add_tails(__u64 own[QJ_TAILS],
							       __u64 before[QJ_TAILS],
							       __u64 fell_ns, __u64 before_ns,
							       __u64 from_ns, __u64 to_ns)
{
	int shared = before_ns && from_ns - before_ns < QJ_LONGEST_TAIL_NS;

	if (from_ns - fell_ns >= QJ_LONGEST_TAIL_NS)
		return;
#pragma GCC unroll 5
	for (int i = 0; i < QJ_TAILS; i++) {
		__u64 length_ns = QJ_TAIL_NS << i, half = 0;

		if (shared) {
			half = qj_within(from_ns, to_ns, before_ns, length_ns) / 2;
			before[i] += half;
		}
		own[i] += qj_within(from_ns, to_ns, fell_ns, length_ns) - half;
	}
}

#endif
