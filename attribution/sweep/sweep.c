// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "events.h"

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

/* Counters of input row `i`. Those that no CPU can reach are as if they had not been read. */
static void read_counters(struct sweep *s, const struct sweep_segments *in, size_t i,
			  struct segment *segment)
{
	double most = s->most_per_ns * ((double)between(segment->t0_ns, segment->t1_ns) + 1000);
	double counted = in->scaled ? in->scaled[i] : 1;
	bool lies = false;

	for (int c = 0; c < SWEEP_COUNTERS; c++) {
		segment->counters[c] = in->counters[i][c];
		segment->valid[c] = in->valid[i][c];
		if (segment->valid[c] && (double)segment->counters[c] > most) {
			segment->valid[c] = false;
			lies = true;
		}
	}
	s->anomalies.implausible_counters += lies;
	/* The comparison fails for NaN: then nothing is known to have been counted. */
	segment->uncounted = counted >= 0 ? 1 - (counted < 1 ? counted : 1) : 1;
}

static bool wait_for_cpu(struct sweep *s, struct cpu *cpu, const struct segment *segment)
{
	uint32_t place = s->free_waiting;

	if (place != NONE) {
		s->free_waiting = s->waiting[place].next;
	} else {
		if (s->waiting_used >= NONE ||
		    !sweep_make_room((void **)&s->waiting, &s->waiting_room, s->waiting_used + 1,
				     sizeof(*s->waiting)))
			return false;
		place = (uint32_t)s->waiting_used++;
	}
	s->waiting[place] = (struct waiting){*segment, NONE};
	if (cpu->first_waiting == NONE)
		cpu->first_waiting = place;
	else
		s->waiting[cpu->last_waiting].next = place;
	cpu->last_waiting = place;
	return true;
}

/* Cleans and cuts input row `i`, moves time to its beginning and opens it. */
static bool add_segment(struct sweep *s, const struct sweep_segments *in, size_t i)
{
	struct segment segment = {.t0_ns = in->t0_ns[i], .t1_ns = in->t1_ns[i]};
	int64_t begin_ns = segment.t0_ns, last_ns = s->last_ns, from_ns;
	bool known = (uint32_t)in->cpu[i] < s->cpus;
	struct cpu *cpu;

	s->anomalies.unknown_cpu += !known;
	s->anomalies.inverted += segment.t1_ns < segment.t0_ns;
	if (!known || segment.t1_ns <= segment.t0_ns)
		return true;
	cpu = &s->cpu[in->cpu[i]];
	if (in->counters)
		read_counters(s, in, i, &segment);
	if (begin_ns < cpu->busy_until_ns) {
		begin_ns = clamp(cpu->busy_until_ns, begin_ns, segment.t1_ns);
		s->anomalies.overlapping++;
		add_time(&s->anomalies.overlap_ns, between(segment.t0_ns, begin_ns));
	}
	if (cpu->busy_until_ns < segment.t1_ns)
		cpu->busy_until_ns = segment.t1_ns;
	s->anomalies.late += begin_ns < s->now_ns && s->now_ns > s->first_ns;
	from_ns = clamp(begin_ns, s->now_ns, last_ns);
	segment.end_ns = clamp(segment.t1_ns, s->now_ns, last_ns);
	add_time(&s->anomalies.outside_ns,
		 between(begin_ns, segment.t1_ns) - between(from_ns, segment.end_ns));
	if (from_ns >= segment.end_ns)
		return true;
	segment.group = in->group[i];
	if (!sweep_advance(s, clamp(segment.t0_ns, s->now_ns, last_ns)))
		return false;
	/* Whoever overlaps begins where its predecessor ends. */
	if (cpu->open)
		return wait_for_cpu(s, cpu, &segment);
	sweep_begin(s, (uint32_t)in->cpu[i], &segment);
	return true;
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
	/* The open window's times stay. */
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
		if (values[i] <= values[i - 1])
			return false;
	return true;
}

static bool allocate(struct sweep *s, const struct sweep_machine *machine)
{
	/* One more than needed: calloc(0) may give NULL. */
	s->boundaries_ns = calloc(s->boundaries + 1, sizeof(*s->boundaries_ns));
	s->cpu = calloc((size_t)machine->cpus + 1, sizeof(*s->cpu));
	s->core = calloc((size_t)machine->cores + 1, sizeof(*s->core));
	s->package = calloc((size_t)machine->packages + 1, sizeof(*s->package));
	s->ends = calloc((size_t)machine->cpus + 1, sizeof(*s->ends));
	return s->boundaries_ns && s->cpu && s->core && s->package && s->ends &&
	       sweep_make_room((void **)&s->watched_ns, &s->watched_room, (size_t)s->watched + 1,
			       sizeof(*s->watched_ns)) &&
	       memset(s->watched_ns, 0, ((size_t)s->watched + 1) * sizeof(*s->watched_ns));
}

struct sweep *sweep_new(const struct sweep_machine *machine, const int64_t *boundaries_ns,
			size_t boundaries, double most_per_ns)
{
	struct sweep *s;

	if (!in_range(machine->cpu_core, machine->cpus, 0, machine->cores) ||
	    !in_range(machine->core_package, machine->cores, 0, machine->packages) ||
	    !in_range(machine->cpu_watched, machine->cpus, -1, machine->watched) ||
	    !ascend(boundaries_ns, boundaries) || !(s = calloc(1, sizeof(*s))))
		return NULL;
	s->cpus = machine->cpus;
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
	s->now_ns = s->first_ns;
	for (uint32_t i = 0; i < machine->cpus; i++)
		s->cpu[i] = (struct cpu){
		    .core = (uint32_t)machine->cpu_core[i],
		    .watched = (uint32_t)machine->cpu_watched[i],
		    .first_waiting = NONE,
		    .busy_until_ns = INT64_MIN,
		};
	for (uint32_t i = 0; i < machine->cores; i++)
		s->core[i].package = (uint32_t)machine->core_package[i];
	for (uint32_t i = 0; i < machine->packages; i++)
		s->package[i].at_ns = s->first_ns;
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
	free(s->ends);
	free(s->waiting);
	free(s->done);
	free(s->watched_ns);
	sweep_entries_free(&s->entries);
	free(s);
}
