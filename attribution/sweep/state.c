// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The state of a sweep between two windows, as numbers that another sweep can go on from.
 *
 * What cannot change any later result is left out: tails that have ended, owners of sleeps long
 * ago, ends that have passed. So two sweeps that saw the same last milliseconds have the same
 * state. */
#include <string.h>

#include "events.h"

enum {
	SEGMENT_NUMBERS = 13, /* of a segment */
	CPU_NUMBERS = 3,      /* of a CPU, before its segments */
	TAIL_NUMBERS = 7,
};

static int64_t bits_of(double value)
{
	int64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static double real_of(int64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t *put_segment(int64_t *to, const struct segment *segment)
{
	*to++ = segment->t0_ns;
	*to++ = segment->end_ns;
	*to++ = segment->group;
	*to++ = (int64_t)segment->full_ns;
	for (int i = 0; i < SWEEP_COUNTERS; i++)
		*to++ = bits_of(segment->counted ? segment->counters[i] : 0);
	for (int i = 0; i < SWEEP_COUNTERS; i++)
		*to++ = bits_of(segment->counted ? segment->read[i] : 0);
	*to++ = bits_of(segment->counted ? segment->uncounted : 0);
	*to++ = bits_of(segment->traffic);
	*to++ = segment->woke_core | segment->woke_package << 1 | segment->counted << 2;
	return to;
}

static const int64_t *get_segment(const int64_t *from, struct segment *segment)
{
	segment->t0_ns = *from++;
	segment->end_ns = *from++;
	segment->group = *from++;
	segment->full_ns = (uint64_t)*from++;
	for (int i = 0; i < SWEEP_COUNTERS; i++)
		segment->counters[i] = real_of(*from++);
	for (int i = 0; i < SWEEP_COUNTERS; i++)
		segment->read[i] = real_of(*from++);
	segment->uncounted = real_of(*from++);
	segment->traffic = real_of(*from++);
	segment->woke_core = *from & 1;
	segment->woke_package = *from >> 1 & 1;
	segment->counted = *from++ >> 2 & 1;
	return from;
}

static size_t count_waiting(const struct sweep *s, const struct cpu *cpu)
{
	size_t n = 0;

	for (uint32_t i = cpu->first_waiting; i != NONE; i = s->waiting[i].next)
		n++;
	return n;
}

static int64_t *put_cpu(const struct sweep *s, int64_t *to, const struct cpu *cpu)
{
	*to++ = cpu->busy_until_ns > s->now_ns ? cpu->busy_until_ns : s->now_ns;
	*to++ = cpu->open;
	*to++ = (int64_t)count_waiting(s, cpu);
	if (cpu->open)
		to = put_segment(to, &cpu->segment);
	for (uint32_t i = cpu->first_waiting; i != NONE; i = s->waiting[i].next)
		to = put_segment(to, &s->waiting[i].segment);
	return to;
}

/* Takes a CPU's numbers of [from, end). NULL: they are not right, or there is no memory. */
static const int64_t *get_cpu(struct sweep *s, const int64_t *from, const int64_t *end,
			      uint32_t number)
{
	struct cpu *cpu = &s->cpu[number];
	int64_t waiting;

	if (end - from < CPU_NUMBERS)
		return NULL;
	cpu->busy_until_ns = *from++;
	cpu->open = *from++ != 0;
	waiting = *from++;
	if (waiting < 0 || (waiting && !cpu->open) ||
	    (end - from) / SEGMENT_NUMBERS < waiting + cpu->open)
		return NULL;
	if (cpu->open) {
		from = get_segment(from, &cpu->segment);
		if (cpu->segment.end_ns <= s->now_ns || cpu->segment.end_ns > s->last_ns ||
		    !cpu->segment.full_ns)
			return NULL;
		cpu->core->package->cores += !cpu->core->threads++;
		sweep_ends_add(&s->ends, number, cpu->segment.end_ns);
	}
	while (waiting--) {
		struct segment *segment = sweep_wait_for_cpu(s, cpu);

		if (!segment)
			return NULL;
		from = get_segment(from, segment);
		if (segment->end_ns < s->now_ns || segment->end_ns > s->last_ns ||
		    !segment->full_ns)
			return NULL;
	}
	return from;
}

/* ---- tails ----------------------------------------------------------------------------------- */

static bool is_past(const struct sweep *s, int64_t t_ns)
{
	return t_ns < s->now_ns && between(t_ns, s->now_ns) >= SWEEP_LONGEST_TAIL_NS;
}

static int64_t *put_tail(const struct sweep *s, int64_t *to, const struct tail *tail, bool idle)
{
	bool past = tail->known && is_past(s, tail->fell_ns);
	/* The sleep before is forgotten when the next one begins, unless this one lasted 0 ns. */
	bool shared =
	    tail->shared && !past && (idle || !tail->slept) && !is_past(s, tail->before_ns);

	*to++ = tail->known;
	*to++ = tail->slept || past;
	*to++ = shared;
	*to++ = past || !tail->known ? 0 : tail->fell_ns;
	*to++ = past || !tail->known ? 0 : tail->group;
	*to++ = shared ? tail->before_ns : 0;
	*to++ = shared ? tail->before_group : 0;
	/* Whether it is past, since 0 may be a time. */
	to[-7] |= past << 1;
	return to;
}

static const int64_t *get_tail(const struct sweep *s, const int64_t *from, struct tail *tail)
{
	bool past = *from >> 1 & 1;

	tail->known = *from++ & 1;
	tail->slept = *from++ != 0;
	tail->shared = *from++ != 0;
	tail->fell_ns = *from++;
	tail->group = *from++;
	tail->before_ns = *from++;
	tail->before_group = *from++;
	tail->from_ns = s->now_ns;
	if (past)
		tail->fell_ns = s->now_ns - SWEEP_LONGEST_TAIL_NS;
	return from;
}

/* ---- whole states ---------------------------------------------------------------------------- */

size_t sweep_state_size(const struct sweep *s)
{
	return (size_t)s->cpus * (CPU_NUMBERS + SEGMENT_NUMBERS) +
	       s->waiting_used * SEGMENT_NUMBERS + ((size_t)s->cores + s->packages) * TAIL_NUMBERS;
}

size_t sweep_state(const struct sweep *s, int64_t *state)
{
	int64_t *to = state;

	if (s->window >= s->boundaries || s->now_ns != s->boundaries_ns[s->window])
		return 0;
	for (uint32_t i = 0; i < s->cpus; i++)
		to = put_cpu(s, to, &s->cpu[i]);
	for (uint32_t i = 0; i < s->cores; i++)
		to = put_tail(s, to, &s->core[i].tail, !s->core[i].threads);
	for (uint32_t i = 0; i < s->packages; i++)
		to = put_tail(s, to, &s->package[i].tail, !s->package[i].cores);
	return (size_t)(to - state);
}

/* Moves a new sweep to the beginning of a window. */
static void move_to(struct sweep *s, size_t window)
{
	s->window = window;
	s->now_ns = s->boundaries_ns[window];
	s->window_end_ns = window + 1 < s->boundaries ? s->boundaries_ns[window + 1] : SWEEP_NEVER;
	for (uint32_t i = 0; i < s->cpus; i++)
		s->cpu[i].since_ns = s->cpu[i].busy_until_ns = s->now_ns;
	for (uint32_t i = 0; i < s->cores; i++)
		s->core[i].at_ns = s->now_ns;
	for (uint32_t i = 0; i < s->packages; i++)
		s->package[i].at_ns = s->now_ns;
}

static void assume_slept(const struct sweep *s, struct tail *tail)
{
	*tail = (struct tail){
	    .known = true,
	    .slept = true,
	    .fell_ns = s->now_ns - SWEEP_LONGEST_TAIL_NS,
	    .from_ns = s->now_ns,
	};
}

bool sweep_resume(struct sweep *s, size_t window, const int64_t *state, size_t n)
{
	const int64_t *from = state, *end = state + n;

	if (window >= s->boundaries || s->window || s->now_ns != s->boundaries_ns[0] ||
	    s->boundaries_ns[window] < INT64_MIN + SWEEP_LONGEST_TAIL_NS)
		return false;
	move_to(s, window);
	for (uint32_t i = 0; state && i < s->cpus; i++)
		if (!(from = get_cpu(s, from, end, i)))
			return false;
	sweep_sum_misses(s);
	if (state && (size_t)(end - from) != ((size_t)s->cores + s->packages) * TAIL_NUMBERS)
		return false;
	for (uint32_t i = 0; i < s->cores; i++) {
		if (state)
			from = get_tail(s, from, &s->core[i].tail);
		else
			assume_slept(s, &s->core[i].tail);
	}
	for (uint32_t i = 0; i < s->packages; i++) {
		if (state)
			from = get_tail(s, from, &s->package[i].tail);
		else
			assume_slept(s, &s->package[i].tail);
	}
	return true;
}
