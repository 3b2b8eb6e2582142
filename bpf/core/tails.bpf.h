/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view: idle tails and wake-ups of cores and packages, which recordings show in their
 * segments.
 *
 * A core's state changes hands when its last thread sleeps, and when its first thread wakes;
 * likewise a package's with its cores. The count of busy ones decides who that is. The last one
 * writes the state while it still counts as busy, so the first one to wake finds it complete:
 * nobody else writes or reads it. Only the tracer looks at any time: whoever exchanges `from_ns`
 * accounts for the idle time that follows it.
 *
 * Sums stay beside the core or package until another owner sleeps there, or until the tracer
 * drains their window. So most sleeps and wake-ups need no row of sums.
 */
#ifndef QJOULE_TAILS_BPF_H
#define QJOULE_TAILS_BPF_H

#include "state.bpf.h"

/* Entry N: the core whose lowest CPU is N. They are followed by the same for packages. */
struct idles_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * QJ_MAX_CPUS);
	__type(key, __u32);
	__type(value, struct qj_idle);
};
extern struct idles_map idles SEC(".maps");

/* A constant for the verifier: it removes the calls where nobody uses tails. */
static __always_inline bool sums_effects(void)
{
	return plan.mode == QJ_MODE_LIVE && plan.effects;
}

/* In tails.bpf.c. This CPU becomes idle: its state still names who ran. Both return 0. */
extern int begin_idle(struct qj_cpu_state *cpu, __u64 now);
/* This CPU becomes busy. */
extern int end_idle(struct qj_cpu_state *cpu, __u64 now);

#endif
