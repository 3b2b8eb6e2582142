// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "events.h"

#include <string.h>

/* ---- from open segments to entries ------------------------------------------------------------
 */

/* A segment's count in its first `ns`, rounded down, so that differences add up to the whole. */
static uint64_t prefix_count(uint64_t count, uint64_t ns, uint64_t full_ns)
{
	return (uint64_t)((unsigned __int128)count * ns / full_ns);
}

/* Cuts out the counts of `ns` of a segment that begin `before_ns` after its beginning. */
static SELDOM void cut_counters(double cut[SWEEP_COUNTERS], const struct segment *segment,
				uint64_t before_ns, uint64_t ns)
{
	for (int i = 0; i < SWEEP_COUNTERS; i++) {
		uint64_t count = (uint64_t)(int64_t)segment->counters[i];

		cut[i] = (double)(prefix_count(count, before_ns + ns, segment->full_ns) -
				  prefix_count(count, before_ns, segment->full_ns));
	}
}

/* Two doubles for SIMD addition and multiplication. */
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));

static inline void add_product(double sum[SWEEP_COUNTERS], const double value[SWEEP_COUNTERS],
			       double factor)
{
	_Static_assert(SWEEP_COUNTERS == 3, "a pair, and one");
	*(pair *)sum += *(const pair *)value * factor;
	sum[2] += value[2] * factor;
}

static inline void add_counters(struct sweep_entry *entry, const struct cpu *cpu, int64_t ns,
				double overlap)
{
	const struct segment *segment = &cpu->segment;
	const double *counters = segment->counters;
	double cut[SWEEP_COUNTERS];

	if (RARELY((uint64_t)ns != segment->full_ns)) {
		cut_counters(cut, segment, elapsed_ns(segment->t0_ns, cpu->since_ns), (uint64_t)ns);
		counters = cut;
	}
	add_product(entry->counters, counters, 1);
	add_product(entry->counted_ns, segment->read, (double)ns);
	add_product(entry->overlap_counters, counters, overlap);
	entry->scaled_ns += (double)ns * segment->uncounted;
	if (RARELY(cpu->small)) {
		entry->small[1] += counters[0];
		entry->small[2] += counters[1];
	}
}

/* Adds the run time of the CPU's open segment since `since_ns` to its entry. The core's integrals
 * must be up to date. */
static inline __attribute__((always_inline)) bool flush(struct sweep *s, struct cpu *cpu,
							int64_t t_ns)
{
	const struct core *core = cpu->core;
	struct package *package = core->package;
	int64_t ns = t_ns - cpu->since_ns;
	int64_t overlap_ns = (int64_t)(core->overlap_ns - cpu->overlap_since_ns);
	struct sweep_entry *entry;

	if (RARELY(!ns)) /* the segment waited for its CPU, and the window ends as it begins */
		return true;
	entry = sweep_entries_find(&s->entries, package->number, cpu->segment.group);
	if (!entry)
		return false;
	entry->cpu_ns += (uint64_t)ns;
	entry->overlap_ns += (uint64_t)overlap_ns;
	entry->shared_ns += core->shared_ns - cpu->shared_since_ns;
	for (int i = 0; i < SWEEP_LIMITS; i++)
		entry->effects[SWEEP_TRAFFIC + i] +=
		    core->traffic.sum[i] - cpu->traffic_since.sum[i];
	entry->effects[SWEEP_CORE_WAKES] += cpu->segment.woke_core;
	entry->effects[SWEEP_PACKAGE_WAKES] += cpu->segment.woke_package;
	cpu->segment.woke_core = cpu->segment.woke_package = 0;
	if (RARELY(cpu->small))
		entry->small[0] += (double)ns;
	if (RARELY(cpu->segment.stolen > 0))
		entry->stolen_ns += (double)ns * cpu->segment.stolen;
	if (cpu->segment.counted)
		add_counters(entry, cpu, ns, (double)overlap_ns / (double)ns);
	package->sums.busy_ns += (uint64_t)ns;
	if (RARELY(cpu->watched != NONE))
		s->watched_ns[s->done_windows * s->watched + cpu->watched] += (uint64_t)ns;
	return true;
}

/* ---- events -----------------------------------------------------------------------------------
 */

static void next_waiting(struct sweep *s, struct cpu *cpu)
{
	uint32_t taken = cpu->first_waiting;

	cpu->core->package->misses_per_ns -= cpu->segment.traffic;
	cpu->segment = s->waiting[taken].segment;
	cpu->core->package->misses_per_ns += cpu->segment.traffic;
	cpu->first_waiting = s->waiting[taken].next;
	s->waiting[taken].next = s->free_waiting;
	s->free_waiting = taken;
}

/* Ends the segment that ends first. If another segment waits for its CPU, it begins at once. */
static inline bool end_segment(struct sweep *s, struct end end)
{
	struct cpu *cpu = &s->cpu[end.cpu];

	advance_core(s, cpu->core, end.t_ns);
	if (!flush(s, cpu, end.t_ns))
		return false;
	if (RARELY(cpu->first_waiting != NONE)) {
		next_waiting(s, cpu);
		mark_summed(cpu, end.t_ns);
		sweep_ends_move_first(&s->ends, cpu->segment.end_ns);
		return true;
	}
	cpu->open = false;
	cpu->core->package->misses_per_ns -= cpu->segment.traffic;
	if (--cpu->core->threads == 0)
		sweep_sleep(s, cpu, end.t_ns);
	sweep_ends_move_first(&s->ends, SWEEP_NEVER);
	return true;
}

/* Flushes open segments and restarts the integrals: small numbers keep their precision however
 * long a trace is. */
static bool end_integrals(struct sweep *s, int64_t end_ns)
{
	for (uint32_t i = 0; i < s->cpus; i++) {
		struct cpu *cpu = &s->cpu[i];

		advance_core(s, cpu->core, end_ns);
		if (cpu->open && !flush(s, cpu, end_ns))
			return false;
		cpu->since_ns = end_ns;
		cpu->shared_since_ns = 0;
		cpu->traffic_since = (struct traffic){0};
		cpu->overlap_since_ns = 0;
	}
	for (uint32_t i = 0; i < s->cpus; i++) {
		struct core *core = s->cpu[i].core;

		core->package_share_ns = core->shared_ns = 0;
		core->package_traffic = core->traffic = (struct traffic){0};
		core->overlap_ns = 0;
	}
	return true;
}

void sweep_sum_misses(struct sweep *s)
{
	for (uint32_t i = 0; i < s->packages; i++)
		s->package[i].misses_per_ns = 0;
	for (uint32_t i = 0; i < s->cpus; i++)
		if (s->cpu[i].open)
			s->cpu[i].core->package->misses_per_ns += s->cpu[i].segment.traffic;
}

static bool end_window(struct sweep *s)
{
	int64_t end_ns = s->window_end_ns;

	if (!end_integrals(s, end_ns) || !sweep_end_tails(s, end_ns) ||
	    !sweep_entries_close(&s->entries, (int64_t)s->window) ||
	    !sweep_make_room((void **)&s->done, &s->done_room, (s->done_windows + 1) * s->packages,
			     sizeof(*s->done)) ||
	    !sweep_make_room((void **)&s->watched_ns, &s->watched_room,
			     (s->done_windows + 2) * s->watched, sizeof(*s->watched_ns)))
		return false;
	advance_kept(s, end_ns);
	for (uint32_t p = 0; p < s->packages; p++) {
		struct package *package = &s->package[p];

		advance_package(s, package, end_ns);
		s->done[s->done_windows * s->packages + p] = package->sums;
		package->sums = (struct sweep_window){0};
		package->share_ns = 0;
		package->traffic_share = (struct traffic){0};
	}
	sweep_sum_misses(s);
	s->done_windows++;
	s->window++;
	s->window_end_ns =
	    s->window + 1 < s->boundaries ? s->boundaries_ns[s->window + 1] : SWEEP_NEVER;
	if (s->watched)
		memset(&s->watched_ns[s->done_windows * s->watched], 0,
		       s->watched * sizeof(*s->watched_ns));
	return true;
}

bool sweep_events(struct sweep *s, int64_t t_ns)
{
	for (;;) {
		struct end end = sweep_ends_first(&s->ends);

		if (end.t_ns <= t_ns && end.t_ns <= s->window_end_ns) {
			if (!end_segment(s, end))
				return false;
		} else if (s->window_end_ns <= t_ns) {
			if (!end_window(s))
				return false;
		} else {
			return true;
		}
	}
}
