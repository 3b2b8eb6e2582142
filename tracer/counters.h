/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Hardware counters, one perf event per counter and CPU, read by the BPF programs. Cycles are those
 * of the core while it is not halted (PERF_COUNT_HW_CPU_CYCLES, perf_event_open(2)): over the CPU
 * time of a thread they are the frequency that it ran at.
 *
 * The events are no group. A group counts all or nothing: where another event holds one counter for
 * itself (the NMI watchdog does) it may never run, and cycles and instructions, which have counters
 * of their own on most CPUs, would have to wait for their turn with the misses. Each is scaled by
 * the time that it ran itself (bpf/core/counted.h).
 */
#ifndef QJ_COUNTERS_H
#define QJ_COUNTERS_H

#include "options.h"

/* As options and messages call them; further counters are `more` and their number, from 0. */
extern const char *const counter_names[QJ_COUNTERS];

struct counters;
struct qjoule_bpf;

/*
 * Opens the counters that the options name. Where a CPU lacks one, stderr says so: the segments of
 * that CPU are without it. One that no CPU has, counters_mask() has no bit for. NULL: no memory.
 */
struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count);
void counters_close(struct counters *counters);

/* Bit i: counter i is being read, at least on some CPUs; the further ones follow the others. */
unsigned counters_mask(const struct counters *counters);

/* Puts the events into the programs' maps. Returns 0 or a negative errno, said on stderr. */
int counters_give(const struct counters *counters, struct qjoule_bpf *skeleton);

#endif /* QJ_COUNTERS_H */
