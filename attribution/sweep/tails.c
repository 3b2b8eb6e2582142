// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Idle times of cores and packages, and the owners charged for them: see `enum sweep_effect`. */
#include "events.h"

#define LENGTHS (SWEEP_TAILS + SWEEP_LONG_TAILS)

/* Lengths of tails, from the latency of a core's shallow states to beyond the target residency of a
 * package's deep ones (drivers/idle/intel_idle.c). Those after SWEEP_TAILS are of packages only:
 * firmware may wait for a timer's tick, at 100 Hz or more, before it enters a deep state. */
static const uint64_t tail_ns[LENGTHS] = {100000,  200000,  400000,  800000,  1600000,
					  3200000, 4800000, 6400000, 9600000, 12800000};

/* The number of a core's or package's tail lengths, and where the sums of its tails begin. */
struct lengths {
	int count, first, further;
};
static const struct lengths core_lengths = {SWEEP_TAILS, SWEEP_CORE_TAIL, 0};
static const struct lengths package_lengths = {LENGTHS, SWEEP_PACKAGE_TAIL,
					       SWEEP_PACKAGE_LONG_TAIL - SWEEP_TAILS};

static double *sum_of(struct sweep_entry *entry, const struct lengths *lengths, int i)
{
	return &entry->effects[(i < SWEEP_TAILS ? lengths->first : lengths->further) + i];
}

/* Returns how much of [from, to) is less than `length` after `since`. */
static double tail_part(int64_t from_ns, int64_t to_ns, int64_t since_ns, uint64_t length_ns)
{
	uint64_t after = elapsed_ns(since_ns, from_ns), ns = elapsed_ns(from_ns, to_ns);
	uint64_t most = after < length_ns ? length_ns - after : 0;

	return (double)(ns < most ? ns : most);
}

/* Adds idle time up to `t_ns` to the tails of the owners that slept last. */
static bool add_tail(struct sweep *s, struct tail *tail, int64_t package, int64_t t_ns,
		     const struct lengths *lengths)
{
	const int last = lengths->count - 1;
	int64_t from_ns = tail->from_ns;
	struct sweep_entry *entry;
	double both[LENGTHS];

	if (!tail->known || t_ns == from_ns)
		return true;
	tail->slept = true;
	tail->from_ns = t_ns;
	if (elapsed_ns(tail->fell_ns, from_ns) >= tail_ns[last])
		return true;
	entry = sweep_entries_find(&s->entries, package, tail->group);
	if (!entry)
		return false;
	for (int i = 0; i <= last; i++) {
		bool halves = tail->shared && i < SWEEP_TAILS;

		both[i] = halves ? tail_part(from_ns, t_ns, tail->before_ns, tail_ns[i]) : 0;
		*sum_of(entry, lengths, i) +=
		    tail_part(from_ns, t_ns, tail->fell_ns, tail_ns[i]) - both[i] / 2;
	}
	if (both[SWEEP_TAILS - 1] <= 0)
		return true;
	entry = sweep_entries_find(&s->entries, package, tail->before_group);
	if (!entry)
		return false;
	for (int i = 0; i < SWEEP_TAILS; i++)
		*sum_of(entry, lengths, i) += both[i] / 2;
	return true;
}

static void fall_asleep(struct tail *tail, int64_t t_ns, int64_t group)
{
	if (tail->slept) { /* not merely a switch of threads */
		tail->shared = true;
		tail->before_ns = tail->fell_ns;
		tail->before_group = tail->group;
	}
	tail->known = true;
	tail->slept = false;
	tail->fell_ns = tail->from_ns = t_ns;
	tail->group = group;
}

/* Records that the last busy thread of the CPU's core went to sleep. */
void sweep_sleep(struct sweep *s, const struct cpu *cpu, int64_t t_ns)
{
	struct package *package = cpu->core->package;

	fall_asleep(&cpu->core->tail, t_ns, cpu->segment.group);
	if (package->cores > 1) {
		package->cores--;
		return;
	}
	advance_kept(s, t_ns);
	package->cores = 0;
	s->awake--;
	package->misses_per_ns = 0; /* removes rounding errors */
	fall_asleep(&package->tail, t_ns, cpu->segment.group);
}

static bool woke(const struct tail *tail, int64_t t_ns)
{
	return tail->known && elapsed_ns(tail->fell_ns, t_ns) >= SWEEP_WAKE_NS;
}

bool sweep_wake(struct sweep *s, struct cpu *cpu)
{
	struct package *package = cpu->core->package;
	struct tail *tail = &cpu->core->tail;

	cpu->segment.woke_core = woke(tail, s->now_ns);
	if (!add_tail(s, tail, package->number, s->now_ns, &core_lengths))
		return false;
	if (package->cores) {
		package->cores++;
		return true;
	}
	advance_kept(s, s->now_ns);
	package->cores = 1;
	s->awake++;
	cpu->segment.woke_package = woke(&package->tail, s->now_ns);
	return add_tail(s, &package->tail, package->number, s->now_ns, &package_lengths);
}

/* Adds the open window's part of the tails that still run. */
bool sweep_end_tails(struct sweep *s, int64_t end_ns)
{
	for (uint32_t i = 0; i < s->cores; i++) {
		struct core *core = &s->core[i];

		if (!core->threads &&
		    !add_tail(s, &core->tail, core->package->number, end_ns, &core_lengths))
			return false;
	}
	for (uint32_t i = 0; i < s->packages; i++) {
		struct package *package = &s->package[i];

		if (!package->cores &&
		    !add_tail(s, &package->tail, package->number, end_ns, &package_lengths))
			return false;
	}
	return true;
}
