/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for MongoDB's threads, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_MONGODB_HOOKS_BPF_H
#define QJOULE_MONGODB_HOOKS_BPF_H

#include "core/query.bpf.h"
#include "core/syscall.bpf.h"
#include "core/task.bpf.h"

/*
 * mongod's sockets block (SyncAsioSession::ensureSync()), so no read returns without data, and no
 * program runs before the next request arrives. If a thread falls asleep while it reads from its
 * client, and the last request was read completely, it has answered that request. A thread that is
 * still runnable has not: it was only preempted on its way back from that read.
 */
static __always_inline struct thread_state *mongodb_switched(struct qj_cpu_state *cpu,
							     struct task_struct *prev,
							     struct thread_state *thread, __u64 now)
{
	if (!PLANNED_ON(MONGODB, SOCKET) || cpu->owner_kind != QJ_OWNER_QUERY || !is_asleep(prev) ||
	    server_plans[(cpu->server - 1) & (QJ_MAX_SERVERS - 1)].kind != QJ_SERVER_MONGODB)
		return thread;
	if (!thread)
		thread = thread_of(prev);
	if (thread && thread->server_kind == QJ_SERVER_MONGODB && thread->rung == QJ_RUNG_SOCKET &&
	    thread->begin_ns && thread->mongodb.is_whole &&
	    is_reading(prev, thread->mongodb.client_fd))
		query_end(cpu, thread, now);
	return thread;
}

/*
 * The client of this thread has disconnected. The thread woke up for no query, so its work since
 * then belongs to the server.
 */
static __always_inline void mongodb_exited(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (!thread->begin_ns && cpu->query == thread->query && cpu->owner_kind == QJ_OWNER_QUERY &&
	    cpu->pid == (__u32)bpf_get_current_pid_tgid()) {
		cpu->query = 0;
		cpu->shape = 0;
		cpu->owner_kind = QJ_OWNER_SERVER;
	}
	thread->query = 0;
}

#endif
