/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for threads of MySQL and MariaDB, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_MYSQL_HOOKS_BPF_H
#define QJOULE_MYSQL_HOOKS_BPF_H

#include "next_read.bpf.h"
#include "wire.bpf.h"

/* Every new client begins with a login; one that was already connected does not. */
static __always_inline void mysql_connected(struct thread_state *thread)
{
	thread->mysql.long_data = 0;
	if (thread->socket || thread->phase != PHASE_UNKNOWN)
		thread->phase = PHASE_STARTUP;
}

static __always_inline void mysql_received(struct qj_cpu_state *cpu, struct task_struct *task,
					   struct thread_state *thread, __u64 addr, int got)
{
	if (got <= 0)
		mysql_wait(cpu, thread, addr, bpf_ktime_get_ns());
	else if (thread->need) /* a packet's body begins and ends nothing: no need for the clock */
		mysql_read(cpu, thread, addr, got, 0);
	else
		mysql_read(cpu, thread, addr, got, bpf_ktime_get_ns());
}

#endif
