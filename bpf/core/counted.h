/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Arithmetic on hardware counters and on CPU times (ns) that the BPF programs share with the tracer
 * and with tests on the host.
 */
#ifndef QJ_COUNTED_H
#define QJ_COUNTED_H

#include "qjoule.h"

/*
 * The increment of a hardware counter between two readings. If more events are requested than the
 * CPU has counters, the kernel multiplexes them (perf_event_open(2), "time_enabled, time_running").
 * An event that ran for part of the time is scaled by enabled / running, and the share of time that
 * it ran is returned too.
 */

/*
 * A very short running time cannot represent a whole slice: the workload changes within tens of us.
 * The kernel also does not stop time and counter at the same instant, so an error of some 100 ns is
 * scaled up too (a running time of 0.12 % of a 12 ms slice was off by 70 %). A counter is ignored
 * if it ran for less than this share, or for less than this time and half of the slice.
 */
#define QJ_LEAST_SHARE	    (QJ_WHOLE / 100)
#define QJ_LEAST_RUNNING_NS 10000

/* One reading of a perf event, with the times that the kernel keeps for it. */
struct qj_reading {
	__u64 counter;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* value * by / of without overflowing 64 bits; `by` and `of` are below 2^48 (78 hours in ns). */
static inline __u64 qj_scaled(__u64 value, __u64 by, __u64 of)
{
	if ((by | of) >> 32) {
		by >>= 16;
		of >>= 16;
	}
	return of ? value / of * by + value % of * by / of : 0;
}

/*
 * Writes the increment between two readings to `increment`, scaled to the whole time between them.
 * Returns the share of that time in which the event counted, in 1/QJ_WHOLE. QJ_WHOLE: all of it. 0:
 * no usable increment, because the event did not count (or too briefly), is no longer enabled, or
 * went backwards.
 */
static inline __u16 qj_counted(const struct qj_reading *before, const struct qj_reading *now,
			       __u64 *increment)
{
	__u64 enabled = now->enabled_ns - before->enabled_ns;
	__u64 running = now->running_ns - before->running_ns;
	__u64 counted = now->counter - before->counter;
	__u16 share;

	*increment = 0;
	/* A step backwards is negative; the times of a stopped event do not advance. */
	if ((__s64)counted < 0 || (__s64)enabled <= 0 || (__s64)running <= 0)
		return 0;
	if (running >= enabled) {
		*increment = counted;
		return QJ_WHOLE;
	}
	share = qj_scaled(QJ_WHOLE, running, enabled);
	if (share < QJ_LEAST_SHARE)
		return 0;
	if (running < QJ_LEAST_RUNNING_NS && running < enabled - running)
		return 0;
	*increment = qj_scaled(counted, enabled, running);
	return share;
}

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
static inline __attribute__((always_inline)) int qj_tails_of(int package)
{
	return package ? QJ_PACKAGE_TAILS : QJ_TAILS;
}

/* Each of the first ones is twice the one before; then they are 3.2, 4.8, 6.4, 9.6 and 12.8 ms. */
static inline __attribute__((always_inline)) __u64 qj_tail_ns(int i)
{
	int further = i - QJ_TAILS;

	if (further < 0)
		return QJ_TAIL_NS << i;
	return (QJ_TAIL_NS * (further & 1 ? 3 : 2)) << (QJ_TAILS - 1 + further / 2);
}

static inline __attribute__((always_inline)) __u64 qj_longest_tail_ns(int package)
{
	return qj_tail_ns(qj_tails_of(package) - 1);
}

/* True if any tail's sum is not 0: then the longest is not, of the sleep or of the one before. */
static inline __attribute__((always_inline)) int qj_any_tail(const __u64 *tail_ns, int package)
{
	return tail_ns[QJ_TAILS - 1] || (package && tail_ns[QJ_PACKAGE_TAILS - 1]);
}

/* The part of [from, to) less than `length_ns` after `since_ns`, which is not after `from_ns`. */
static inline __u64 qj_within(__u64 from_ns, __u64 to_ns, __u64 since_ns, __u64 length_ns)
{
	__u64 after = from_ns - since_ns, ns = to_ns - from_ns;
	__u64 most = after < length_ns ? length_ns - after : 0;

	return ns < most ? ns : most;
}

/*
 * Adds the idle time [from, to) to the sums of the sleep that began it, and of the sleep before:
 * while both tails run, each has half, to the ns. Long tails belong only to the last sleep.
 */
static inline __attribute__((always_inline)) void
qj_add_tails(__u64 own[QJ_PACKAGE_TAILS], __u64 before[QJ_PACKAGE_TAILS], __u64 fell_ns,
	     __u64 before_ns, __u64 from_ns, __u64 to_ns, int package)
{
	int shared = before_ns && from_ns - before_ns < qj_longest_tail_ns(0);

	if (from_ns - fell_ns >= qj_longest_tail_ns(package))
		return;
#pragma GCC unroll 10
	for (int i = 0; i < QJ_PACKAGE_TAILS; i++) {
		__u64 length_ns = qj_tail_ns(i), half = 0;

		if (i >= qj_tails_of(package))
			break;
		if (shared && i < QJ_TAILS) {
			half = qj_within(from_ns, to_ns, before_ns, length_ns) / 2;
			before[i] += half;
		}
		own[i] += qj_within(from_ns, to_ns, fell_ns, length_ns) - half;
	}
}

#endif
