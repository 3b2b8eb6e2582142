/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hardware counters, one perf event per counter and CPU, read by the BPF programs. */
#ifndef QJ_COUNTERS_H
#define QJ_COUNTERS_H

#include "options.h"

struct counters;
struct qjoule_bpf;

/*
 * Opens the counters that the options name. One that cannot be opened on every CPU is not read at
 * all: stderr says so, and counters_mask() has no bit for it. NULL: no memory.
 */
struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count);
void counters_close(struct counters *counters);

/* Bit i: counter i is being read. */
unsigned counters_mask(const struct counters *counters);

/* Puts the events into the programs' maps. Returns 0 or a negative errno, said on stderr. */
int counters_give(const struct counters *counters, struct qjoule_bpf *skeleton);

#endif /* QJ_COUNTERS_H */
