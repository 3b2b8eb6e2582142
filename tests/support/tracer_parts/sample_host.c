// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The draws of queries and of waits on the host, for tests. */
#include <stdlib.h>
#include <string.h>

#include "core/wait_samples.bpf.h"

#define SHAPES 64

static struct {
	struct qj_plan plan;
} shared;
extern const volatile struct qj_plan plan __attribute__((alias("shared")));
struct qj_cpu_state cpus[QJ_MAX_CPUS];
struct sampled_map sampled;
struct wait_counts_map wait_counts;
__u64 samples_used_ns;

static struct draw_counts shapes[SHAPES], kinds[QJ_WAITS];
static __u64 now_ns, random_state;

/* ---- the kernel ------------------------------------------------------------------------------ */

__u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

__u64 bpf_ktime_get_ns(void)
{
	return now_ns;
}

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014) */
__u32 bpf_get_prandom_u32(void)
{
	__u64 z = random_state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (z ^ (z >> 31)) >> 32;
}

static __u64 shape_of(const void *key)
{
	return ((const struct sampled_key *)key)->shape % SHAPES;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	struct draw_counts *shape;

	if (map == &wait_counts)
		return &kinds[*(const __u32 *)key];
	shape = &shapes[shape_of(key)];
	return map == &sampled && shape->period ? shape : NULL;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	memcpy(&shapes[shape_of(key)], value, sizeof(shapes[0]));
	return 0;
}

/* ---- for tests/fast/agent/test_samples.py ---------------------------------------------------- */

void sample_begin(__u32 samples, __u64 seed)
{
	shared.plan.samples = samples;
	random_state = seed;
	samples_used_ns = 0;
	memset(shapes, 0, sizeof(shapes));
	memset(cpus, 0, sizeof(cpus));
}

/* Queries of these shapes end at these times. Sets the probability of each; 0: it was not drawn. */
void sample_run(size_t count, const __u64 *shape, const __u64 *end_ns, double *probability)
{
	struct thread_state thread = {.server = 1};

	for (size_t i = 0; i < count; i++) {
		thread.shape = shape[i];
		now_ns = end_ns[i];
		probability[i] = 0;
		if (is_drawn(&thread, end_ns[i]))
			probability[i] = thread.ended_probability
					     ? thread.ended_probability / 4294967296.0
					     : 1.0;
	}
}

__u32 sample_lost(void)
{
	return cpus[0].loss[QJ_LOSS_SAMPLE];
}

/* ---- for tests/fast/tracer/test_wait_draws.py ------------------------------------------------ */

void waits_begin(__u32 draws, __u64 period_ns, __u64 seed)
{
	shared.plan.waits = draws;
	shared.plan.wait_period_ns = period_ns;
	random_state = seed;
	memset(kinds, 0, sizeof(kinds));
}

/* Waits of these kinds begin at these times. Sets the probability of each; 0: it was not drawn. */
void waits_run(size_t count, const __u64 *begin_ns, const __u64 *kind, double *probability)
{
	for (size_t i = 0; i < count; i++) {
		struct thread_state thread = {.off_ns = begin_ns[i] + 1, .waits.kind = kind[i]};

		probability[i] = 0;
		if (draw_wait(&thread, begin_ns[i]))
			probability[i] = thread.waits.probability
					     ? thread.waits.probability / 4294967296.0
					     : 1.0;
	}
}
