/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view: a random sample of queries, beside the sums. Each server's shape has its own draws.
 * The first query of a period is drawn for certain, so that no shape is missing. A later one is
 * drawn with probability plan.samples / calls, where `calls` is the shape's number of calls in the
 * period before or in this one so far, whichever is larger. This depends only on the past, so
 * weights of 1 / probability give unbiased estimates (Horvitz and Thompson, JASA 47, 1952), and
 * about plan.samples are drawn per period.
 */
#ifndef QJOULE_SAMPLE_BPF_H
#define QJOULE_SAMPLE_BPF_H

#include "emit.bpf.h"

#define SAMPLES_PER_S 1000 /* for all shapes together; draws beyond are counted as lost */

struct sampled_key {
	__u64 shape;
	__u64 server;
};

struct sampled_shape {
	__u64 period; /* number of the period, from 1 */
	__u32 calls;  /* calls in this period */
	__u32 before; /* calls in the period before */
};

/* A shape evicted from the map begins again with a certain draw. */
struct sampled_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sampled_key);
	__type(value, struct sampled_shape);
};
extern struct sampled_map sampled SEC(".maps");

/* `used_ns` of within_rate(), shared by all CPUs. */
extern __u64 samples_used_ns;

/* Counts the call that ends now. Two CPUs may count the first one of a period. */
static __always_inline void count_call(struct sampled_shape *shape, __u64 period)
{
	__u64 before = shape->period;

	if (before == period) {
		__sync_fetch_and_add(&shape->calls, 1);
		return;
	}
	shape->before = before + 1 == period ? shape->calls : 0;
	shape->calls = 1;
	shape->period = period;
}

/* The probability of this draw, in 1 / 2^32; 0: certain. */
static __always_inline __u32 probability_of(const struct sampled_shape *shape)
{
	__u64 calls = shape->calls, before = shape->before;
	__u64 most = calls > before ? calls : before;

	if (calls <= 1 || most <= plan.samples)
		return 0;
	return ((__u64)plan.samples << 32) / most;
}

/* Returns true if the thread's ended query is drawn; the thread then has the probability. */
static __always_inline bool is_drawn(struct thread_state *thread, __u64 end_ns)
{
	struct sampled_key key = {.shape = thread->shape, .server = thread->server};
	struct sampled_shape first = {.period = end_ns / QJ_SAMPLE_NS + 1, .calls = 1};
	struct sampled_shape *shape = bpf_map_lookup_elem(&sampled, &key);

	thread->ended_probability = 0;
	if (!shape) {
		bpf_map_update_elem(&sampled, &key, &first, BPF_NOEXIST);
	} else {
		count_call(shape, first.period);
		thread->ended_probability = probability_of(shape);
		if (thread->ended_probability && bpf_get_prandom_u32() >= thread->ended_probability)
			return false;
	}
	if (within_rate(&samples_used_ns, SAMPLES_PER_S))
		return true;
	count_loss(this_cpu(), QJ_LOSS_SAMPLE);
	return false;
}

#endif
