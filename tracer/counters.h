/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Hardware counters, one perf event per counter and CPU, read by the BPF programs. Cycles are core
 * cycles while the core is not halted (PERF_COUNT_HW_CPU_CYCLES, perf_event_open(2)): divided by a
 * thread's CPU time they give the frequency at which it ran.
 *
 * The events do not form a group. A group counts all or nothing: if another event pins one counter
 * (as the NMI watchdog does), the group may never run. On most CPUs cycles and instructions have
 * counters of their own; in a group they would have to take turns together with the misses. Each
 * event is scaled by the time that it ran itself (bpf/core/counted.h).
 */
#ifndef QJ_COUNTERS_H
#define QJ_COUNTERS_H

#include "options.h"

/* Names in options and messages. Further counters are called `more` plus their number, from 0. */
extern const char *const counter_names[QJ_COUNTERS];

struct counters;
struct qjoule_bpf;

/*
 * Opens the counters that the options name. If a CPU lacks one, a line on stderr reports it, and
 * the segments of that CPU do not have the counter. A counter that no CPU has gets no bit in
 * counters_mask(). NULL: no memory.
 */
struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count, bool early);
void counters_close(struct counters *counters);

/* Bit i: counter i is read on at least some CPUs. The further counters follow the others. */
unsigned counters_mask(const struct counters *counters);

/*
 * Puts the events into the programs' maps. Returns 0, or a negative errno after a line on stderr.
 */
int counters_give(const struct counters *counters, struct qjoule_bpf *skeleton);

#endif /* QJ_COUNTERS_H */
