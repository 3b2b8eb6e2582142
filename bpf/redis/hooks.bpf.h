/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for processes and threads of Redis, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_REDIS_HOOKS_BPF_H
#define QJOULE_REDIS_HOOKS_BPF_H

#include "core/key_request.bpf.h"

/*
 * Whether the process that has just called exec() has the arguments of a tool. In arguments.bpf.c:
 * the verifier checks it once.
 */
extern int is_redis_tool(__u64 start, __u64 bytes);

static __always_inline void redis_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					   struct thread_state *thread)
{
	key_forget_if_slept(thread, &thread->redis.turn, task);
}

/* A Redis forks to write a snapshot or a new log. The child has its name, so it gets a role. */
static __always_inline const char *redis_forked(struct task_struct *child)
{
	static const char redis_fork[] = "redis-fork";

	return child->pid == child->tgid ? redis_fork : 0;
}

/* Sentinel and the checkers use the same file. */
static __always_inline bool redis_executed(struct task_struct *task)
{
	__u64 start = BPF_CORE_READ(task, mm, arg_start);

	return !is_redis_tool(start, BPF_CORE_READ(task, mm, arg_end) - start);
}

#endif
