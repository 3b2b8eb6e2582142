/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for backends of PostgreSQL, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_POSTGRES_HOOKS_BPF_H
#define QJOULE_POSTGRES_HOOKS_BPF_H

#include "core/query.bpf.h"

/* An io worker that has slept since its last request works for no query. */
static __always_inline void postgres_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					      struct thread_state *thread)
{
	if (!thread->postgres.io_worker || thread->postgres.sleeps == TASK_FIELD(task, nvcsw))
		return;
	thread->query = 0;
	thread->shape = 0;
	thread->tags = 0;
	thread->session = 0;
	thread->begin_ns = 0;
}

#endif
