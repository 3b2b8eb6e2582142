// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "events.h"

#define MOST_COUNTS ((uint64_t)1 << 53)

/* ---- input ------------------------------------------------------------------------------------
 */

static void add_time(uint64_t *sum, uint64_t ns)
{
	*sum = ns > INT64_MAX - *sum ? INT64_MAX : *sum + ns;
}

static int64_t clamp(int64_t t, int64_t low, int64_t high)
{
	return t < low ? low : t > high ? high : t;
}

/* The greatest plausible count in `ns`: a CPU can reach it, and a double holds it exactly. */
static uint64_t max_plausible_count(const struct sweep *s, uint64_t ns)
{
	uint64_t most;

	if (__builtin_add_overflow(ns, 1000, &most) ||
	    __builtin_mul_overflow(most, s->most_per_ns, &most) || most > MOST_COUNTS)
		return MOST_COUNTS;
	return most;
}

/* Reads the counters of input row `i`. Implausible ones are treated as not read. */
static inline void read_counters(struct sweep *s, const struct sweep_segments *in, size_t i,
				 struct segment *segment)
{
	double counted = in->scaled ? in->scaled[i] : 1;
	uint64_t most = max_plausible_count(s, segment->full_ns);
	bool any = false, lies = false;

#pragma GCC unroll 3
	for (int c = 0; c < SWEEP_COUNTERS; c++) {
		uint64_t count = in->counters[c][i];
		bool valid = in->valid[c][i], read = valid & (count <= most);

		segment->read[c] = read;
		segment->counters[c] = (double)(int64_t)count * read;
		lies |= valid & !read;
		any |= read;
	}
	if (RARELY(lies))
		s->anomalies.implausible_counters++;
	segment->counted = any;
	segment->traffic = segment->counters[2] / (double)segment->full_ns;
	/* A NaN fails the comparison, so the whole time counts as uncounted. */
	segment->uncounted = counted >= 0 ? 1 - (counted < 1 ? counted : 1) : 1;
}

/* Returns the queue slot for the next segment of the busy CPU; NULL without memory. */
SELDOM struct segment *sweep_wait_for_cpu(struct sweep *s, struct cpu *cpu)
{
	uint32_t place = s->free_waiting;

	if (place != NONE) {
		s->free_waiting = s->waiting[place].next;
	} else {
		if (s->waiting_used >= NONE ||
		    !sweep_make_room((void **)&s->waiting, &s->waiting_room, s->waiting_used + 1,
				     sizeof(*s->waiting)))
			return NULL;
		place = (uint32_t)s->waiting_used++;
	}
	s->waiting[place].next = NONE;
	if (cpu->first_waiting == NONE)
		cpu->first_waiting = place;
	else
		s->waiting[cpu->last_waiting].next = place;
	cpu->last_waiting = place;
	return &s->waiting[place].segment;
}

/* The remainder of a segment after cutting, and the time at which it is opened. */
struct cut {
	int64_t from_ns, end_ns, open_ns;
};

/* Cuts a segment that overlaps another on its CPU, begins late or exceeds the windows. */
static SELDOM struct cut cut(struct sweep *s, const struct cpu *cpu, int64_t t0_ns, int64_t t1_ns)
{
	int64_t begin_ns = t0_ns;
	struct cut left;

	if (begin_ns < cpu->busy_until_ns) {
		begin_ns = clamp(cpu->busy_until_ns, begin_ns, t1_ns);
		s->anomalies.overlapping++;
		add_time(&s->anomalies.overlap_ns, elapsed_ns(t0_ns, begin_ns));
	}
	s->anomalies.late += begin_ns < s->now_ns && s->now_ns > s->first_ns;
	left.from_ns = clamp(begin_ns, s->now_ns, s->last_ns);
	left.end_ns = clamp(t1_ns, s->now_ns, s->last_ns);
	left.open_ns = clamp(t0_ns, s->now_ns, s->last_ns);
	add_time(&s->anomalies.outside_ns,
		 elapsed_ns(begin_ns, t1_ns) - elapsed_ns(left.from_ns, left.end_ns));
	return left;
}

/* Cleans and cuts input row `i`, advances time to its beginning and opens it. */
static inline bool add_segment(struct sweep *s, const struct sweep_segments *in, size_t i)
{
	int64_t t0_ns = in->t0_ns[i], t1_ns = in->t1_ns[i];
	struct cut left = {t0_ns, t1_ns, t0_ns};
	uint32_t number = (uint32_t)in->cpu[i];
	struct segment *segment;
	struct cpu *cpu;
	bool waits;

	if (RARELY(number >= s->cpus || t1_ns <= t0_ns)) {
		s->anomalies.unknown_cpu += number >= s->cpus;
		s->anomalies.inverted += t1_ns < t0_ns;
		return true;
	}
	cpu = &s->cpu[number];
	if (RARELY(t0_ns < cpu->busy_until_ns || t0_ns < s->now_ns || t1_ns > s->last_ns))
		left = cut(s, cpu, t0_ns, t1_ns);
	if (cpu->busy_until_ns < t1_ns)
		cpu->busy_until_ns = t1_ns;
	if (RARELY(left.from_ns >= left.end_ns)) {
		struct segment lost = {.full_ns = elapsed_ns(t0_ns, t1_ns)};

		if (in->counted) /* checks whether they are plausible */
			read_counters(s, in, i, &lost);
		return true;
	}
	if (!sweep_advance(s, left.open_ns))
		return false;
	/* An overlapping segment begins where its predecessor ends. */
	waits = cpu->open;
	segment = RARELY(waits) ? sweep_wait_for_cpu(s, cpu) : &cpu->segment;
	if (!segment)
		return false;
	segment->t0_ns = t0_ns;
	segment->end_ns = left.end_ns;
	segment->full_ns = elapsed_ns(t0_ns, t1_ns);
	segment->group = in->group[i];
	segment->counted = false;
	segment->traffic = 0;
	segment->stolen = in->stolen ? in->stolen[i] : 0;
	segment->woke_core = segment->woke_package = 0;
	if (in->counted)
		read_counters(s, in, i, segment);
	return waits || sweep_begin(s, number);
}

bool sweep_add(struct sweep *s, const struct sweep_segments *segments)
{
	for (size_t i = 0; i < segments->n; i++)
		if (!add_segment(s, segments, i))
			return false;
	return true;
}

bool sweep_finish(struct sweep *s)
{
	return sweep_advance(s, s->last_ns);
}

/* ---- output -----------------------------------------------------------------------------------
 */

struct sweep_result sweep_done(const struct sweep *s)
{
	return (struct sweep_result){
	    .windows = s->done_windows,
	    .packages = s->packages,
	    .watched = s->watched,
	    .entries = s->entries.finished,
	    .window = s->done,
	    .watched_ns = s->watched_ns,
	    .entry = s->entries.done,
	    .anomalies = s->anomalies,
	};
}

void sweep_forget(struct sweep *s)
{
	/* Keeps the open window's times. */
	memmove(s->watched_ns, s->watched_ns + s->done_windows * s->watched,
		s->watched * sizeof(*s->watched_ns));
	s->done_windows = 0;
	s->entries.finished = 0;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static bool in_range(const int32_t *numbers, size_t n, int64_t low, uint32_t end)
{
	for (size_t i = 0; i < n; i++)
		if (numbers[i] < low || numbers[i] >= (int64_t)end)
			return false;
	return true;
}

static bool ascend(const int64_t *values, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (values[i] <= values[i - 1] || elapsed_ns(values[i - 1], values[i]) > INT64_MAX)
			return false;
	return true;
}

static bool allocate(struct sweep *s, const struct sweep_machine *machine)
{
	uint32_t most = machine->cpus; /* threads of a core, or busy cores */

	/* One more than needed, because calloc(0) may return NULL. */
	s->boundaries_ns = calloc(s->boundaries + 1, sizeof(*s->boundaries_ns));
	s->cpu = calloc((size_t)machine->cpus + 1, sizeof(*s->cpu));
	s->core = calloc((size_t)machine->cores + 1, sizeof(*s->core));
	s->package = calloc((size_t)machine->packages + 1, sizeof(*s->package));
	s->inverse = calloc((size_t)most + 1, sizeof(*s->inverse));
	for (uint32_t i = 1; s->inverse && i <= most; i++)
		s->inverse[i] = 1.0 / i;
	return s->boundaries_ns && s->cpu && s->core && s->package && s->inverse &&
	       sweep_ends_init(&s->ends, machine->cpus) && sweep_entries_init(&s->entries) &&
	       sweep_make_room((void **)&s->watched_ns, &s->watched_room, (size_t)s->watched + 1,
			       sizeof(*s->watched_ns)) &&
	       memset(s->watched_ns, 0, ((size_t)s->watched + 1) * sizeof(*s->watched_ns));
}

struct sweep *sweep_new(const struct sweep_machine *machine, const int64_t *boundaries_ns,
			size_t boundaries, uint32_t most_per_ns)
{
	struct sweep *s;

	if (!in_range(machine->cpu_core, machine->cpus, 0, machine->cores) ||
	    !in_range(machine->core_package, machine->cores, 0, machine->packages) ||
	    !in_range(machine->cpu_watched, machine->cpus, -1, machine->watched) ||
	    !in_range(machine->cpu_small, machine->cpus, 0, 2) ||
	    !ascend(boundaries_ns, boundaries) ||
	    (boundaries && boundaries_ns[boundaries - 1] == SWEEP_NEVER) ||
	    !(s = calloc(1, sizeof(*s))))
		return NULL;
	s->cpus = machine->cpus;
	s->cores = machine->cores;
	s->packages = machine->packages;
	s->watched = machine->watched;
	s->boundaries = boundaries;
	s->most_per_ns = most_per_ns;
	s->free_waiting = NONE;
	if (!allocate(s, machine)) {
		sweep_free(s);
		return NULL;
	}
	if (boundaries) {
		memcpy(s->boundaries_ns, boundaries_ns, boundaries * sizeof(*boundaries_ns));
		s->first_ns = boundaries_ns[0];
		s->last_ns = boundaries_ns[boundaries - 1];
	}
	s->now_ns = s->kept_at_ns = s->first_ns;
	s->window_end_ns = boundaries > 1 ? boundaries_ns[1] : SWEEP_NEVER;
	for (uint32_t i = 0; i < machine->cpus; i++)
		s->cpu[i] = (struct cpu){
		    .core = &s->core[machine->cpu_core[i]],
		    .watched = (uint32_t)machine->cpu_watched[i],
		    .small = machine->cpu_small[i],
		    .first_waiting = NONE,
		    .busy_until_ns = INT64_MIN,
		};
	for (uint32_t i = 0; i < machine->cores; i++)
		s->core[i].package = &s->package[machine->core_package[i]];
	for (uint32_t i = 0; i < machine->packages; i++)
		s->package[i] = (struct package){.number = i, .at_ns = s->first_ns};
	return s;
}

void sweep_free(struct sweep *s)
{
	if (!s)
		return;
	free(s->boundaries_ns);
	free(s->cpu);
	free(s->core);
	free(s->package);
	free(s->inverse);
	sweep_ends_free(&s->ends);
	free(s->waiting);
	free(s->done);
	free(s->watched_ns);
	sweep_entries_free(&s->entries);
	free(s);
}
