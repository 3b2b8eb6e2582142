// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What a sweep holds, and how time moves in it. */
#ifndef QJOULE_SWEEP_EVENTS_H
#define QJOULE_SWEEP_EVENTS_H

#include "entries.h"
#include "sweep.h"

#define NONE UINT32_MAX

/* A segment: its times as recorded, and where it ends once it is cut. */
struct segment {
	int64_t t0_ns, t1_ns, end_ns, group;
	uint64_t counters[SWEEP_COUNTERS];
	bool valid[SWEEP_COUNTERS];
	double uncounted; /* share of the time in which counters did not count */
};

struct waiting {
	struct segment segment;
	uint32_t next;
};

/* `since_ns`: from here on the open segment is in no sum yet; what the core's integrals were. */
struct cpu {
	uint32_t core, watched;
	bool open;
	uint32_t first_waiting, last_waiting;
	int64_t busy_until_ns; /* when all of its segments so far have ended */
	int64_t since_ns;
	double shared_since_ns;
	uint64_t overlap_since_ns;
	struct segment segment;
};

/* Integrals since the core became busy or the window began. */
struct core {
	uint32_t package, threads; /* busy ones */
	int64_t at_ns;
	double package_share_ns; /* the package's `share_ns` at `at_ns` */
	double shared_ns;	 /* of dt / (busy cores * busy threads): what each thread gets */
	uint64_t overlap_ns;	 /* of time with two threads busy or more */
};

/* Integrals since the window began. */
struct package {
	uint32_t cores; /* busy ones */
	int64_t at_ns;
	double share_ns; /* of dt / busy cores: what each core gets */
	struct sweep_window sums;
};

struct end {
	int64_t t_ns;
	uint32_t cpu;
};

struct sweep {
	uint32_t cpus, packages, watched, open_cpus;
	int64_t *boundaries_ns;
	size_t boundaries, window; /* the open one */
	int64_t first_ns, last_ns, now_ns;
	double most_per_ns;
	struct cpu *cpu;
	struct core *core;
	struct package *package;
	struct end *ends; /* of open segments: a heap, the earliest first */
	struct waiting *waiting;
	size_t waiting_used, waiting_room;
	uint32_t free_waiting;
	struct entries entries;
	struct sweep_window *done;
	uint64_t *watched_ns; /* the open window's come after `done_windows` complete ones */
	size_t done_windows, done_room, watched_room;
	struct sweep_anomalies anomalies;
};

/* b - a where a <= b; twice the range of int64_t fits. */
static inline uint64_t between(int64_t a, int64_t b)
{
	return (uint64_t)b - (uint64_t)a;
}

/* Makes the CPU, which is idle, run the segment from now on. */
void sweep_begin(struct sweep *sweep, uint32_t cpu, const struct segment *segment);
/* All events up to `t_ns`, those at that time included. False: no memory. */
bool sweep_advance(struct sweep *sweep, int64_t t_ns);

#endif
