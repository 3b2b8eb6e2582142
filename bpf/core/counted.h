/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a hardware counter counted between two readings. If more events are requested than the CPU
 * has counters, the kernel multiplexes them (perf_event_open(2), "time_enabled, time_running"). An
 * event that ran for part of the time is scaled by enabled / running, and the share of time that it
 * ran is returned too. Used by the BPF programs and, in tests, on the host.
 */
#ifndef QJ_COUNTED_H
#define QJ_COUNTED_H

#include "qjoule.h"

/*
 * A very short running time cannot represent a whole slice: the workload changes within tens of us.
 * The kernel also does not stop time and counter at the same instant, so an error of some 100 ns is
 * scaled up too (a running time of 0.12 % of a 12 ms slice was off by 70 %). A counter that ran for
 * less than this share of a slice is ignored. It is also ignored if it ran for less than this time,
 * unless that was half of the slice.
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

#endif /* QJ_COUNTED_H */
