// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The state of a sweep, and how time advances in it. */
#ifndef QJOULE_SWEEP_EVENTS_H
#define QJOULE_SWEEP_EVENTS_H

#include "ends.h"
#include "entries.h"
#include "sweep.h"

#define NONE UINT32_MAX

/* A segment: its beginning and length as recorded, and its end after cutting. */
struct segment {
	int64_t t0_ns, end_ns, group;
	uint64_t full_ns;
	double counters[SWEEP_COUNTERS]; /* whole numbers; 0 if not read */
	double read[SWEEP_COUNTERS];	 /* 1 if read, 0 if not */
	double uncounted;		 /* share of the time in which counters did not count */
	double traffic;			 /* misses per ns; 0 if not read */
	double stolen;			 /* share of the time that the host stole */
	uint8_t woke_core, woke_package; /* 1: the segment's beginning ended an idle time */
	bool counted;			 /* any counter was read */
};

struct waiting {
	struct segment segment;
	uint32_t next;
};

/* Sums for `SWEEP_TRAFFIC`. */
struct traffic {
	double sum[SWEEP_LIMITS];
};

/* `since_ns`: the sums include the open segment up to this time; the core's integrals are of it. */
struct cpu {
	struct core *core;
	uint32_t watched;
	bool open, small;
	uint32_t first_waiting, last_waiting;
	int64_t busy_until_ns; /* end of the CPU's latest segment so far */
	int64_t since_ns;
	double shared_since_ns;
	struct traffic traffic_since;
	uint64_t overlap_since_ns;
	struct segment segment;
};

/* The idle time of a core or package, and whose sleep began it. */
struct tail {
	bool known;			 /* a group has run before */
	bool slept;			 /* the last sleep lasted longer than 0 ns */
	int64_t fell_ns, group;		 /* time and group of the last sleep */
	int64_t before_ns, before_group; /* time and group of the sleep before, if `shared` */
	bool shared;
	int64_t from_ns; /* the sums include idle time up to here */
};

/* Integrals of a core since the window began. */
struct core {
	struct package *package;
	uint32_t threads; /* number of busy threads */
	int64_t at_ns;
	double package_share_ns; /* the package's `share_ns` at `at_ns` */
	double shared_ns;    /* integral of dt / (busy cores * busy threads): each thread's share */
	uint64_t overlap_ns; /* time with two or more busy threads */
	struct traffic package_traffic; /* the package's `traffic_share` at `at_ns` */
	struct traffic traffic;		/* each thread's share */
	struct tail tail;
};

/* Integrals of a package since the window began. */
struct package {
	uint32_t number, cores; /* `cores`: number of busy cores */
	int64_t at_ns;
	double share_ns;	      /* integral of dt / busy cores: each core's share */
	double misses_per_ns;	      /* summed over all segments that run now */
	struct traffic traffic_share; /* integral of dt * mean misses per ns / busy cores */
	struct tail tail;
	struct sweep_window sums;
};

struct sweep {
	uint32_t cpus, cores, packages, watched;
	int64_t *boundaries_ns;
	size_t boundaries, window; /* `window`: the open window */
	int64_t first_ns, last_ns, now_ns;
	int64_t window_end_ns; /* SWEEP_NEVER once no window is left */
	uint64_t most_per_ns;
	double *inverse; /* 1 / n, and 0 for 0: time divided by n busy cores or threads */
	struct cpu *cpu;
	struct core *core;
	struct package *package;
	uint32_t awake;	    /* packages with a busy core */
	int64_t kept_at_ns; /* the sums of all packages include `kept_ns` up to here */
	struct ends ends;   /* of open segments */
	struct waiting *waiting;
	size_t waiting_used, waiting_room;
	uint32_t free_waiting;
	struct entries entries;
	struct sweep_window *done;
	uint64_t *watched_ns; /* of `done_windows` complete windows, then of the open one */
	size_t done_windows, done_room, watched_room;
	struct sweep_anomalies anomalies;
};

/* Returns b - a for a <= b, also where the difference exceeds int64_t. */
static inline uint64_t elapsed_ns(int64_t a, int64_t b)
{
	return (uint64_t)b - (uint64_t)a;
}

/* ---- integrals over time ----------------------------------------------------------------------
 *
 * These functions do not branch, because a core's or package's state cannot be predicted. */

/* Caps on the mean misses per ns of busy cores: an uncore's clock follows traffic, and reaches its
 * highest frequency long before memory's limit of some 100 misses per us and core. */
static const double limit_per_ns[SWEEP_LIMITS] = {0.005, 0.02, 0.08};

static inline void advance_traffic(const struct sweep *s, struct package *package, double ns)
{
	double per_core = s->inverse[package->cores], mean = package->misses_per_ns * per_core;

	for (int i = 0; i < SWEEP_LIMITS; i++)
		package->traffic_share.sum[i] +=
		    ns * per_core * (mean < limit_per_ns[i] ? mean : limit_per_ns[i]);
}

static inline void share_traffic(struct core *core, double per_thread)
{
	const struct traffic *now = &core->package->traffic_share;

	for (int i = 0; i < SWEEP_LIMITS; i++)
		core->traffic.sum[i] += (now->sum[i] - core->package_traffic.sum[i]) * per_thread;
	core->package_traffic = *now;
}

static inline void advance_package(const struct sweep *s, struct package *package, int64_t t_ns)
{
	int64_t ns = t_ns - package->at_ns;

	package->at_ns = t_ns;
	package->share_ns += (double)ns * s->inverse[package->cores];
	if (package->misses_per_ns > 0)
		advance_traffic(s, package, (double)ns);
	package->sums.active_ns += (uint64_t)ns & -(uint64_t)(package->cores > 0);
	package->sums.core_ns += (uint64_t)ns * package->cores;
}

static inline void advance_core(const struct sweep *s, struct core *core, int64_t t_ns)
{
	struct package *package = core->package;

	advance_package(s, package, t_ns);
	core->shared_ns += (package->share_ns - core->package_share_ns) * s->inverse[core->threads];
	core->overlap_ns += elapsed_ns(core->at_ns, t_ns) & -(uint64_t)(core->threads > 1);
	share_traffic(core, s->inverse[core->threads]);
	core->package_share_ns = package->share_ns;
	core->at_ns = t_ns;
}

/* Marks that the sums include the CPU's segment up to `t_ns`. */
static inline void mark_summed(struct cpu *cpu, int64_t t_ns)
{
	cpu->since_ns = t_ns;
	cpu->shared_since_ns = cpu->core->shared_ns;
	cpu->overlap_since_ns = cpu->core->overlap_ns;
	cpu->traffic_since = cpu->core->traffic;
}

/* Adds the time since the last change of `awake` to the packages that others keep awake. Called
 * where a package wakes or falls asleep, and at the end of a window. */
static inline void advance_kept(struct sweep *s, int64_t t_ns)
{
	int64_t ns = t_ns - s->kept_at_ns;

	s->kept_at_ns = t_ns;
	if (!s->awake || s->awake == s->packages)
		return;
	for (uint32_t i = 0; i < s->packages; i++)
		if (!s->package[i].cores)
			s->package[i].sums.kept_ns += (uint64_t)ns;
}

/* Records that the last busy thread of the CPU's core went to sleep. */
void sweep_sleep(struct sweep *s, const struct cpu *cpu, int64_t t_ns);
/* Adds the open window's part of the tails that still run. Returns false without memory. */
bool sweep_end_tails(struct sweep *s, int64_t end_ns);
/* Ends the idle time of a core, and of its package if that is idle too. False: no memory. */
bool sweep_wake(struct sweep *s, struct cpu *cpu);

/* Returns the queue slot for the next segment of a busy CPU; NULL without memory. */
struct segment *sweep_wait_for_cpu(struct sweep *s, struct cpu *cpu);
/* Recomputes each package's misses per ns, without the rounding errors of earlier windows. */
void sweep_sum_misses(struct sweep *s);

/* Opens the `segment` of an idle CPU. Returns false without memory. */
static inline bool sweep_begin(struct sweep *s, uint32_t number)
{
	struct cpu *cpu = &s->cpu[number];
	struct package *package = cpu->core->package;

	advance_core(s, cpu->core, s->now_ns);
	if (!cpu->core->threads++ && !sweep_wake(s, cpu))
		return false;
	package->misses_per_ns += cpu->segment.traffic;
	cpu->open = true;
	mark_summed(cpu, s->now_ns);
	sweep_ends_add(&s->ends, number, cpu->segment.end_ns);
	return true;
}

/* Handles all events up to and including `t_ns`. Returns false without memory. */
bool sweep_events(struct sweep *sweep, int64_t t_ns);

/* Advances time to `t_ns`. Returns false without memory. */
static inline bool sweep_advance(struct sweep *s, int64_t t_ns)
{
	if ((sweep_ends_first(&s->ends).t_ns <= t_ns || s->window_end_ns <= t_ns) &&
	    !sweep_events(s, t_ns))
		return false;
	s->now_ns = t_ns;
	return true;
}

#endif
