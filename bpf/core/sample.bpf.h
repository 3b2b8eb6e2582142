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

/* What is drawn from: calls of a shape, or waits of a kind. */
struct draw_counts {
	__u64 period; /* number of the period, from 1 */
	__u32 calls;  /* in this period */
	__u32 before; /* in the period before */
};

/* A shape evicted from the map begins again with a certain draw. */
struct sampled_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sampled_key);
	__type(value, struct draw_counts);
};
extern struct sampled_map sampled SEC(".maps");

/* `used_ns` of within_rate(), shared by all CPUs. */
extern __u64 samples_used_ns;

/* Counts the call that ends now. Two CPUs may count the first one of a period. */
static __always_inline void count_call(struct draw_counts *counts, __u64 period)
{
	__u64 before = counts->period;

	if (before == period) {
		__sync_fetch_and_add(&counts->calls, 1);
		return;
	}
	counts->before = before + 1 == period ? counts->calls : 0;
	counts->calls = 1;
	counts->period = period;
}

/*
 * The probability of this draw, in 1 / 2^32; 0: certain. `draws`: how many are wanted in a period;
 * its first one is certain if `first`.
 */
static __always_inline __u32 probability_of(const struct draw_counts *counts, __u32 draws,
					    bool first)
{
	__u64 calls = counts->calls, before = counts->before;
	__u64 most = calls > before ? calls : before;

	if ((first && calls <= 1) || most <= draws)
		return 0;
	return ((__u64)draws << 32) / most;
}

/* Returns true if the thread's ended query is drawn; the thread then has the probability. */
static __always_inline bool is_drawn(struct thread_state *thread, __u64 end_ns)
{
	struct sampled_key key = {.shape = thread->shape, .server = thread->server};
	struct draw_counts first = {.period = end_ns / QJ_SAMPLE_NS + 1, .calls = 1};
	struct draw_counts *counts = bpf_map_lookup_elem(&sampled, &key);

	thread->ended_probability = 0;
	if (!counts) {
		bpf_map_update_elem(&sampled, &key, &first, BPF_NOEXIST);
	} else {
		count_call(counts, first.period);
		thread->ended_probability = probability_of(counts, plan.samples, true);
		if (thread->ended_probability && bpf_get_prandom_u32() >= thread->ended_probability)
			return false;
	}
	if (within_rate(&samples_used_ns, SAMPLES_PER_S))
		return true;
	count_loss(this_cpu(), QJ_LOSS_SAMPLE);
	return false;
}

#endif
