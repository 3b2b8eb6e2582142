/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for backends of PostgreSQL, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_POSTGRES_HOOKS_BPF_H
#define QJOULE_POSTGRES_HOOKS_BPF_H

#include "data.bpf.h"
#include "next_read.bpf.h"
#include "wire.bpf.h"

/* A backend has one client: if we attached later, that client has already logged in. */
static __always_inline void postgres_connected(struct thread_state *thread)
{
}

/* An io worker that has slept since its last request works for no query. */
static __always_inline void postgres_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					      struct thread_state *thread)
{
	if (!thread->postgres.io_worker || thread->postgres.sleeps == task->nvcsw)
		return;
	thread->query = 0;
	thread->shape = 0;
	thread->tags = 0;
	thread->session = 0;
	thread->begin_ns = 0;
}

/*
 * Finds a backend's reply buffer: PqSendBuffer, a variable at a known distance from the start of
 * its data. The backend sets it before it first reads.
 */
static __always_inline void postgres_find_replies(struct thread_state *thread)
{
	if (!thread->postgres.send_buffer)
		postgres_variable(&thread->postgres.send_buffer,
				  sizeof(thread->postgres.send_buffer),
				  facts_of(thread)[QJ_POSTGRES_SEND_BUFFER]);
}

static __always_inline void postgres_received(struct qj_cpu_state *cpu, struct task_struct *task,
					      struct thread_state *thread, __u64 addr, int got)
{
	__u64 now = bpf_ktime_get_ns();
	bool unknown = thread->phase == PHASE_UNKNOWN;

	postgres_find_replies(thread);
	if (got <= 0) {
		postgres_wait(cpu, thread, now);
		return;
	}
	postgres_read(cpu, thread, addr, got, now);
	if (unknown && thread->phase == PHASE_READY) /* its login was not seen */
		postgres_named(cpu, thread);
}

#endif
