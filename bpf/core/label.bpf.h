/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The owner of a CPU slice: its thread, and the query that the thread serves. */
#ifndef QJOULE_LABEL_BPF_H
#define QJOULE_LABEL_BPF_H

#include "hooks.bpf.h"

/* Labels the slice that opened at `now` with the running thread. */
static __always_inline void label_slice(struct qj_cpu_state *cpu, struct task_struct *task,
					__u64 now)
{
	struct thread_state *thread;
	__u32 pid = TASK_FIELD(task, pid);

	if (!pid != !(cpu->busy_clock & QJ_CLOCK_RUNS)) {
		cpu->busy_clock = qj_busy_set(cpu->busy_clock, !!pid, now);
		if (sums_effects() && pid)
			end_idle(cpu, now);
		else if (sums_effects())
			begin_idle(cpu, now);
	}
	cpu->pid = pid;
	cpu->tgid = TASK_FIELD(task, tgid);
	cpu->server = 0;
	cpu->query = 0;
	cpu->shape = 0;
	if (!pid) {
		cpu->owner_kind = QJ_OWNER_IDLE;
		return;
	}
	thread = thread_of(task);
	if (thread) {
		hooks_labelled(cpu, task, thread);
		cpu->server = thread->server;
		cpu->query = thread->query;
		label_query(cpu, thread);
		/*
		 * Sums cannot be corrected later: a wake-up is the server's until a query is seen.
		 */
		if (!thread->query || (plan.mode == QJ_MODE_LIVE && !thread->begin_ns))
			cpu->owner_kind = QJ_OWNER_SERVER;
		else
			cpu->owner_kind = QJ_OWNER_QUERY;
	} else if (TASK_FIELD(task, flags) & PF_KTHREAD) {
		cpu->owner_kind = QJ_OWNER_KERNEL;
	} else if (cpu->tgid == plan.tracer_tgid || cpu->tgid == plan.reader_tgid ||
		   cpu->tgid == plan.root_tgid) {
		cpu->owner_kind = QJ_OWNER_TRACER;
	} else {
		cpu->owner_kind = QJ_OWNER_PROCESS;
	}
}

#endif
