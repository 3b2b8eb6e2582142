/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Hooks for what differs between servers. The core calls <server>_<hook>() for each server that
 * lists the hook in the registry; bpf/<server>/state.bpf.h defines them. The verifier removes the
 * calls to servers that are not planned. The last function here labels a slice, which calls a hook.
 */
#ifndef QJOULE_HOOKS_BPF_H
#define QJOULE_HOOKS_BPF_H

#include "blocked.bpf.h"
#include "query.bpf.h"
#include "server_hooks.h"

/* A server's hook is called only for its own threads, and only if such a server is planned. */
#define IS_THREAD_OF(thread, NAME) (PLANNED(NAME) && (thread)->server_kind == QJ_SERVER_##NAME)

/*
 * `prev` has left its CPU without being preempted. `thread` is its state, or 0 if it has none or is
 * not looked up yet. A hook may end the thread's query. It returns `thread` if it has looked it up.
 */
static __always_inline struct thread_state *hooks_switched(struct qj_cpu_state *cpu,
							   struct task_struct *prev,
							   struct thread_state *thread, __u64 now)
{
#define X(name, NAME)                                                                              \
	if (PLANNED(NAME))                                                                         \
		thread = name##_switched(cpu, prev, thread, now);
	QJ_HOOKS_SWITCHED(X)
#undef X
	return thread;
}

/* A thread goes to sleep in the middle of a query: its server may know what it waits for. */
static __always_inline void hooks_blocked(struct qj_cpu_state *cpu, struct thread_state *thread)
{
#define X(name, NAME)                                                                              \
	if (IS_THREAD_OF(thread, NAME))                                                            \
		name##_blocked(cpu, thread);
	QJ_HOOKS_BLOCKED(X)
#undef X
}

/* A CPU slice of this thread begins. */
static __always_inline void hooks_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					   struct thread_state *thread)
{
#define X(name, NAME)                                                                              \
	if (IS_THREAD_OF(thread, NAME))                                                            \
		name##_labelled(cpu, task, thread);
	QJ_HOOKS_LABELLED(X)
#undef X
}

/* A server's thread was found, or a server created it. */
static __always_inline void hooks_started(struct task_struct *task, struct thread_state *thread)
{
#define X(name, NAME)                                                                              \
	if (IS_THREAD_OF(thread, NAME))                                                            \
		name##_started(task, thread);
	QJ_HOOKS_STARTED(X)
#undef X
}

/* A server's thread has created `child`. Returns the child's role, or 0 if its name is its role. */
static __always_inline const char *hooks_forked(const struct thread_state *thread,
						struct task_struct *child)
{
	const char *comm = 0;

#define X(name, NAME)                                                                              \
	if (IS_THREAD_OF(thread, NAME))                                                            \
		comm = name##_forked(child);
	QJ_HOOKS_FORKED(X)
#undef X
	return comm;
}

/* Returns true if a process that has just executed a server's file is that server, not a tool. */
static __always_inline bool hooks_executed(struct task_struct *task, __u8 kind)
{
	bool is_server = true;

#define X(name, NAME)                                                                              \
	if (PLANNED(NAME) && kind == QJ_SERVER_##NAME)                                             \
		is_server = name##_executed(task);
	QJ_HOOKS_EXECUTED(X)
#undef X
	return is_server;
}

/* Returns true if tools run the same file as this kind of server; hooks_executed() detects them. */
static __always_inline bool has_tools(__u8 kind)
{
#define X(name, NAME)                                                                              \
	if (kind == QJ_SERVER_##NAME)                                                              \
		return true;
	QJ_HOOKS_EXECUTED(X)
#undef X
	return false;
}

/* A thread's stack was sampled: a server of this kind may find its current work there. */
static __always_inline void hooks_sampled(__u8 server_kind, struct task_struct *task,
					  struct qj_ring_stack *r, struct stack_scratch *scratch)
{
#define X(name, NAME)                                                                              \
	if (PLANNED(NAME) && server_kind == QJ_SERVER_##NAME)                                      \
		name##_sampled(task, r, scratch);
	QJ_HOOKS_SAMPLED(X)
#undef X
}

/* A thread exits after the query that it served has ended. */
static __always_inline void hooks_exited(struct qj_cpu_state *cpu, struct thread_state *thread)
{
#define X(name, NAME)                                                                              \
	if (IS_THREAD_OF(thread, NAME))                                                            \
		name##_exited(cpu, thread);
	QJ_HOOKS_EXITED(X)
#undef X
}

/* ---- the owner of a CPU slice: its thread, and the query that the thread serves ---- */

/* Labels the slice that opened at `now` with the running thread. */
static __always_inline void label_slice(struct qj_cpu_state *cpu, struct task_struct *task,
					__u64 now)
{
	struct thread_state *thread;
	__u32 pid = TASK_FIELD(task, pid);

	/* Read before the look-up: a thread that is adopted after it changes the number. */
	cpu->adopted = *(volatile __u32 *)&control.adopted;
	cpu->serving = 0;
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
		cpu->serving = thread->server_kind;
		if (thread->off_ns)
			wait_end(thread, task, now);
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
		return;
	}
	if (TASK_FIELD(task, flags) & PF_KTHREAD) {
		cpu->owner_kind = QJ_OWNER_KERNEL;
		return;
	}
	cpu->serving = cpu->tgid == 1 ? 0 : QJ_SERVING_NONE;
	if (cpu->tgid == plan.tracer_tgid || cpu->tgid == plan.reader_tgid ||
	    cpu->tgid == plan.root_tgid)
		cpu->owner_kind = QJ_OWNER_TRACER;
	else
		cpu->owner_kind = QJ_OWNER_PROCESS;
}

#endif
