/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hooks for memcached's threads, called by the core: core/hooks.bpf.h. */
#ifndef QJOULE_MEMCACHED_HOOKS_BPF_H
#define QJOULE_MEMCACHED_HOOKS_BPF_H

#include "core/key_request.bpf.h"

static __always_inline void memcached_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					       struct thread_state *thread)
{
	key_forget_if_slept(thread, &thread->memcached.turn, task);
}

#endif
