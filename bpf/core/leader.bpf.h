/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Queries with helper threads: each helper works for the query of its leader. */
#ifndef QJOULE_LEADER_BPF_H
#define QJOULE_LEADER_BPF_H

#include "query.bpf.h"

/* The query that a helper works for. */
struct leader {
	__u64 query;
	__u64 shape;
	__u64 tags;
	__u64 session;
};

static __always_inline struct leader leader_of(const struct thread_state *thread)
{
	return (struct leader){.query = thread->query,
			       .shape = thread->shape,
			       .tags = thread->tags,
			       .session = thread->session};
}

/* From here on this thread works for the leader's query. */
static __always_inline void leader_join(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct leader *leader)
{
	thread->query = leader->query;
	thread->shape = leader->shape;
	thread->tags = leader->tags;
	thread->session = leader->session;
	thread->begin_ns = bpf_ktime_get_ns();
	thread->borrowed = 1;
	claim_slice(cpu, thread, thread->begin_ns);
}

#endif
