// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * One pass over segments in order of their beginning: how long each group ran in each window, and
 * which threads and cores were busy beside it.
 *
 * Time advances from event to event: a segment begins, a segment ends, a window ends. A CPU runs
 * one segment at a time, so at most one per CPU is open. An event reads only the first end and one
 * entry, however many CPUs there are. Memory holds only open segments, segments that wait for their
 * CPU, groups that ran recently, and sums that the caller has not taken.
 *
 * Results are bit-identical however the stream of segments is divided into calls of sweep_add().
 */
#ifndef QJOULE_SWEEP_H
#define QJOULE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SWEEP_COUNTERS 3 /* cycles, instructions, LLC misses */
#define SWEEP_SMALL    3 /* time, cycles, instructions */

/* What owners cause besides running, in the order of `struct sweep_entry.effects`.
 *
 * Traffic is the integral of dt * (mean misses per ns of the package's busy cores) / (busy cores *
 * busy threads of the core), where the mean is capped: one sum for each of SWEEP_LIMITS caps. A
 * tail is the time that a package, or a core, has been idle, up to a length: sums for each of
 * SWEEP_TAILS lengths, and of packages for SWEEP_LONG_TAILS more. A tail belongs to the owner whose
 * sleep began it. While a short tail of the sleep before runs, both have half. A wake-up is the end
 * of an idle time of at least SWEEP_WAKE_NS, and belongs to the owner that runs first. */
#define SWEEP_LIMITS	 3
#define SWEEP_TAILS	 5
#define SWEEP_LONG_TAILS 5
#define SWEEP_WAKE_NS	 1000 /* shorter idle times are a switch between two threads */
enum sweep_effect {
	SWEEP_TRAFFIC,
	SWEEP_PACKAGE_TAIL = SWEEP_TRAFFIC + SWEEP_LIMITS,
	SWEEP_CORE_TAIL = SWEEP_PACKAGE_TAIL + SWEEP_TAILS,
	SWEEP_PACKAGE_WAKES = SWEEP_CORE_TAIL + SWEEP_TAILS,
	SWEEP_CORE_WAKES,
	SWEEP_KEPT_AWAKE, /* left at 0: model/kept_awake.py divides `kept_ns` */
	SWEEP_PACKAGE_LONG_TAIL,
	SWEEP_EFFECTS = SWEEP_PACKAGE_LONG_TAIL + SWEEP_LONG_TAILS,
};

/* Which CPUs share a core and a package. `cpu_watched`: a number (from 0, each once) for CPUs
 * whose busy time is needed per window, -1 for others. `cpu_small`: 1 for CPUs of a smaller kind of
 * core than others, 0 for others. */
struct sweep_machine {
	uint32_t cpus, cores, packages, watched;
	const int32_t *cpu_core;     /* [cpus] */
	const int32_t *core_package; /* [cores] */
	const int32_t *cpu_watched;  /* [cpus] */
	const int32_t *cpu_small;    /* [cpus] */
};

/* n segments, one array per column. If not `counted`, the last two are not read; `scaled` and
 * `stolen` may be NULL. */
struct sweep_segments {
	size_t n;
	const int64_t *t0_ns, *t1_ns;
	const int32_t *cpu;   /* index in the machine; segments of other CPUs are anomalies */
	const int64_t *group; /* the owner to charge */
	const float *scaled;  /* share of the time in which the counters counted */
	const float *stolen;  /* share of the time that the host stole, 0 to 1 */
	bool counted;
	const uint64_t *counters[SWEEP_COUNTERS];
	const uint8_t *valid[SWEEP_COUNTERS]; /* nonzero if the counter was read */
};

/* Sums of one group on one package in one window. Counts are whole numbers. A group's time is 0 if
 * only its tail falls in the window. */
struct sweep_entry {
	int64_t window, package, group;
	uint64_t cpu_ns;
	uint64_t overlap_ns; /* time with another thread of the core busy */
	double
	    shared_ns; /* integral of dt / (busy cores of the package * busy threads of the core) */
	double counters[SWEEP_COUNTERS];
	double counted_ns[SWEEP_COUNTERS];	 /* time over which each counter was read */
	double overlap_counters[SWEEP_COUNTERS]; /* counts times share of overlap */
	double scaled_ns;	       /* time in which multiplexed counters did not count */
	double stolen_ns;	       /* time that the host stole */
	double small[SWEEP_SMALL];     /* on small cores: time, cycles, instructions */
	double effects[SWEEP_EFFECTS]; /* `enum sweep_effect` */
};

/* Sums of one package in one window. */
struct sweep_window {
	uint64_t busy_ns;   /* summed over the package's CPUs */
	uint64_t core_ns;   /* time with any thread busy, summed over the package's cores */
	uint64_t active_ns; /* time with any CPU busy */
	uint64_t kept_ns;   /* time with only other packages busy */
};

/* Input that a correct stream does not contain. Sums of time stop at INT64_MAX. */
struct sweep_anomalies {
	uint64_t overlapping, overlap_ns; /* began before another on its CPU had ended; cut off */
	uint64_t late; /* began before a segment that came earlier in the stream */
	uint64_t inverted, unknown_cpu;
	uint64_t outside_ns; /* before or after all windows, or late */
	uint64_t implausible_counters;
};

/* Complete windows, in order: `windows` * packages sums, `windows` * watched busy times, and
 * entries sorted by window, package and group. Valid until the next call. */
struct sweep_result {
	size_t windows, packages, watched, entries;
	const struct sweep_window *window;
	const uint64_t *watched_ns;
	const struct sweep_entry *entry;
	struct sweep_anomalies anomalies;
};

struct sweep;

/* `boundaries_ns` ascend strictly, by at most INT64_MAX, and end before INT64_MAX. Counts of more
 * than `most_per_ns` per nanosecond, or more than 2^53 at once, are implausible. Copies its
 * arguments. Returns NULL without memory, or if a number is out of range. */
struct sweep *sweep_new(const struct sweep_machine *machine, const int64_t *boundaries_ns,
			size_t boundaries, uint32_t most_per_ns);
void sweep_free(struct sweep *sweep);

/* Both return false if memory ran out; the sweep is then unusable. */
bool sweep_add(struct sweep *sweep, const struct sweep_segments *segments);
/* Ends all windows that are still open. */
bool sweep_finish(struct sweep *sweep);
/* Returns the complete results since sweep_forget(), and the anomalies of the whole stream. */
struct sweep_result sweep_done(const struct sweep *sweep);
void sweep_forget(struct sweep *sweep);

#endif
