// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "events.h"

#include <string.h>

/* ---- integrals over time ----------------------------------------------------------------------
 */

static void move_package(struct package *package, int64_t t_ns)
{
	uint64_t ns = between(package->at_ns, t_ns);

	package->at_ns = t_ns;
	if (!package->cores || !ns)
		return;
	package->share_ns += (double)ns / package->cores;
	package->sums.active_ns += ns;
	package->sums.core_ns += ns * package->cores;
}

static struct core *move_core(struct sweep *s, const struct cpu *cpu, int64_t t_ns)
{
	struct core *core = &s->core[cpu->core];
	struct package *package = &s->package[core->package];

	move_package(package, t_ns);
	if (core->threads) {
		core->shared_ns += (package->share_ns - core->package_share_ns) / core->threads;
		if (core->threads > 1)
			core->overlap_ns += between(core->at_ns, t_ns);
	}
	core->package_share_ns = package->share_ns;
	core->at_ns = t_ns;
	return core;
}

/* ---- ends of open segments --------------------------------------------------------------------
 */

static void sift_down(struct sweep *s, struct end end)
{
	uint32_t i = 0;

	for (uint32_t child; (child = 2 * i + 1) < s->open_cpus; i = child) {
		if (child + 1 < s->open_cpus && s->ends[child + 1].t_ns < s->ends[child].t_ns)
			child++;
		if (end.t_ns <= s->ends[child].t_ns)
			break;
		s->ends[i] = s->ends[child];
	}
	s->ends[i] = end;
}

static void sift_up(struct sweep *s, struct end end)
{
	uint32_t i = s->open_cpus++;

	for (; i && end.t_ns < s->ends[(i - 1) / 2].t_ns; i = (i - 1) / 2)
		s->ends[i] = s->ends[(i - 1) / 2];
	s->ends[i] = end;
}

/* ---- from open segments to entries ------------------------------------------------------------
 */

/* What of a segment's count falls into its first `ns`: parts add up to the whole. */
static uint64_t part(uint64_t count, uint64_t ns, uint64_t full_ns)
{
	return (uint64_t)((unsigned __int128)count * ns / full_ns);
}

static void add_counters(struct sweep_entry *entry, const struct cpu *cpu, int64_t t_ns,
			 double overlap)
{
	const struct segment *segment = &cpu->segment;
	uint64_t ns = between(cpu->since_ns, t_ns), begin = between(segment->t0_ns, cpu->since_ns),
		 full_ns = between(segment->t0_ns, segment->t1_ns);
	bool any = false;

	for (int i = 0; i < SWEEP_COUNTERS; i++) {
		uint64_t count = segment->counters[i];

		if (!segment->valid[i])
			continue;
		if (ns != full_ns)
			count = part(count, begin + ns, full_ns) - part(count, begin, full_ns);
		entry->counters[i] += (double)count;
		entry->counted_ns[i] += (double)ns;
		entry->overlap_counters[i] += (double)count * overlap;
		any = true;
	}
	if (any)
		entry->scaled_ns += (double)ns * segment->uncounted;
}

/* Adds what the CPU's open segment has run since `since_ns` to its entry. */
static bool flush(struct sweep *s, struct cpu *cpu, int64_t t_ns)
{
	const struct core *core = move_core(s, cpu, t_ns);
	uint64_t ns = between(cpu->since_ns, t_ns),
		 overlap_ns = core->overlap_ns - cpu->overlap_since_ns;
	struct sweep_entry *entry;

	if (!ns) /* it waited for its CPU, and the window ends as it begins */
		return true;
	entry = sweep_entries_find(&s->entries, core->package, cpu->segment.group);
	if (!entry)
		return false;
	entry->cpu_ns += ns;
	entry->overlap_ns += overlap_ns;
	entry->shared_ns += core->shared_ns - cpu->shared_since_ns;
	add_counters(entry, cpu, t_ns, (double)overlap_ns / (double)ns);
	s->package[core->package].sums.busy_ns += ns;
	if (cpu->watched != NONE)
		s->watched_ns[s->done_windows * s->watched + cpu->watched] += ns;
	cpu->since_ns = t_ns;
	cpu->shared_since_ns = core->shared_ns;
	cpu->overlap_since_ns = core->overlap_ns;
	return true;
}

/* ---- events -----------------------------------------------------------------------------------
 */

void sweep_begin(struct sweep *s, uint32_t number, const struct segment *segment)
{
	struct cpu *cpu = &s->cpu[number];
	struct core *core = move_core(s, cpu, s->now_ns);

	if (core->threads++ == 0) {
		s->package[core->package].cores++;
		core->shared_ns = 0;
		core->overlap_ns = 0;
	}
	cpu->open = true;
	cpu->segment = *segment;
	cpu->since_ns = s->now_ns;
	cpu->shared_since_ns = core->shared_ns;
	cpu->overlap_since_ns = core->overlap_ns;
	sift_up(s, (struct end){segment->end_ns, number});
}

/* Ends the segment that ends first. One that waited for its CPU follows at once. */
static bool end_segment(struct sweep *s)
{
	struct end end = s->ends[0];
	struct cpu *cpu = &s->cpu[end.cpu];
	struct core *core = &s->core[cpu->core];

	s->now_ns = end.t_ns;
	if (!flush(s, cpu, end.t_ns))
		return false;
	if (cpu->first_waiting != NONE) {
		uint32_t taken = cpu->first_waiting;

		cpu->segment = s->waiting[taken].segment;
		cpu->first_waiting = s->waiting[taken].next;
		s->waiting[taken].next = s->free_waiting;
		s->free_waiting = taken;
		sift_down(s, (struct end){cpu->segment.end_ns, end.cpu});
		return true;
	}
	cpu->open = false;
	if (--core->threads == 0)
		s->package[core->package].cores--;
	end = s->ends[--s->open_cpus];
	sift_down(s, end);
	return true;
}

static bool end_window(struct sweep *s)
{
	int64_t end_ns = s->boundaries_ns[s->window + 1];

	s->now_ns = end_ns;
	for (uint32_t i = 0; i < s->open_cpus; i++)
		if (!flush(s, &s->cpu[s->ends[i].cpu], end_ns))
			return false;
	if (!sweep_entries_close(&s->entries, (int64_t)s->window) ||
	    !sweep_make_room((void **)&s->done, &s->done_room, (s->done_windows + 1) * s->packages,
			     sizeof(*s->done)) ||
	    !sweep_make_room((void **)&s->watched_ns, &s->watched_room,
			     (s->done_windows + 2) * s->watched, sizeof(*s->watched_ns)))
		return false;
	for (uint32_t p = 0; p < s->packages; p++) {
		struct package *package = &s->package[p];

		move_package(package, end_ns);
		s->done[s->done_windows * s->packages + p] = package->sums;
		package->sums = (struct sweep_window){0};
		package->share_ns = 0;
	}
	/* Integrals start again: small numbers keep their precision however long a trace is. */
	for (uint32_t i = 0; i < s->open_cpus; i++) {
		struct cpu *cpu = &s->cpu[s->ends[i].cpu];
		struct core *core = &s->core[cpu->core];

		core->package_share_ns = core->shared_ns = cpu->shared_since_ns = 0;
		core->overlap_ns = cpu->overlap_since_ns = 0;
	}
	s->done_windows++;
	s->window++;
	if (s->watched)
		memset(&s->watched_ns[s->done_windows * s->watched], 0,
		       s->watched * sizeof(*s->watched_ns));
	return true;
}

bool sweep_advance(struct sweep *s, int64_t t_ns)
{
	while (s->window + 1 < s->boundaries) {
		int64_t window_end_ns = s->boundaries_ns[s->window + 1];
		int64_t until_ns = t_ns < window_end_ns ? t_ns : window_end_ns;

		while (s->open_cpus && s->ends[0].t_ns <= until_ns)
			if (!end_segment(s))
				return false;
		if (t_ns < window_end_ns)
			break;
		if (!end_window(s))
			return false;
	}
	s->now_ns = t_ns;
	return true;
}
