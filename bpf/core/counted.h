/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a hardware counter counted between two readings. Where more events are wanted than the CPU
 * has counters, the kernel lets them take turns (perf_event_open(2), "time_enabled, time_running"):
 * an event that ran for a part of the time is scaled by enabled / running, and says how large the
 * part was. For the programs and, in tests, for the host.
 */
#ifndef QJ_COUNTED_H
#define QJ_COUNTED_H

#include "qjoule.h"

/*
 * A sliver does not stand for the whole slice: what runs changes within tens of us, and time and
 * counter are not stopped at one instant, so some 100 ns of error are scaled up with the rest (a
 * sliver of 0.12 % of 12 ms was off by 70 %). What counted for less than this share of a slice,
 * or for less than this time unless it was half of the slice, did not count.
 */
#define QJ_LEAST_SHARE	    (QJ_WHOLE / 100)
#define QJ_LEAST_RUNNING_NS 10000

/* One reading of a perf event; times as the kernel keeps them for it. */
struct qj_reading {
	__u64 counter;
	__u64 enabled_ns;
	__u64 running_ns;
};

/* value * by / of without leaving 64 bits on the way; `by`, `of` below 2^48: 78 hours in ns. */
static inline __u64 qj_scaled(__u64 value, __u64 by, __u64 of)
{
	if ((by | of) >> 32) {
		by >>= 16;
		of >>= 16;
	}
	return of ? value / of * by + value % of * by / of : 0;
}

/*
 * The increment between two readings goes to `increment`, scaled to all of the time between them.
 * Returns the share of that time which was counted, in 1/QJ_WHOLE: QJ_WHOLE if it was all of it, 0
 * if there is no increment to tell, because the event did not count (or but for a sliver), is no
 * longer enabled, or went backwards.
 */
static inline __u16 qj_counted(const struct qj_reading *before, const struct qj_reading *now,
			       __u64 *increment)
{
	__u64 enabled = now->enabled_ns - before->enabled_ns;
	__u64 running = now->running_ns - before->running_ns;
	__u64 counted = now->counter - before->counter;
	__u16 share;

	*increment = 0;
	/* A step backwards is negative; the times of an event that stopped stand still. */
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
