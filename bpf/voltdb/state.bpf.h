/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for site threads of VoltDB, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_VOLTDB_STATE_BPF_H
#define QJOULE_VOLTDB_STATE_BPF_H

#include "core/query.bpf.h"
#include "core/task.bpf.h"

/*
 * A site thread that sleeps after a batch of fragments has presumably finished their transaction. A
 * thread that is still runnable was only preempted on its way back to user space; the tracepoint
 * does not report that as a preemption.
 */
static __always_inline struct thread_state *voltdb_switched(struct qj_cpu_state *cpu,
							    struct task_struct *prev,
							    struct thread_state *thread, __u64 now)
{
	if (thread && is_asleep(prev) && thread->server_kind == QJ_SERVER_VOLTDB &&
	    thread->begin_ns && thread->end_ns)
		query_end(cpu, thread, thread->end_ns);
	return thread;
}

/* A thread that was preempted after a batch may fall asleep on this CPU. */
static __always_inline void voltdb_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					    struct thread_state *thread)
{
	if (thread->end_ns)
		cpu->has_ended = 1;
}

#endif
