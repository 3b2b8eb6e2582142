/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whether a task that leaves its CPU can run on. */
#ifndef QJOULE_TASK_STATE_BPF_H
#define QJOULE_TASK_STATE_BPF_H

#include "state.bpf.h"

/* Before Linux 5.14 (commit 2f064a59a11f): a relocation ignores what follows three underscores. */
struct task_struct___before_5_14 {
	volatile long state;
} __attribute__((preserve_access_index));

/* False: it was only preempted, or has been woken up again. */
static __always_inline bool is_asleep(const struct task_struct *task)
{
	const struct task_struct___before_5_14 *before = (const void *)task;

	if (IS_EARLY && !bpf_core_field_exists(task->__state))
		return before->state;
	return task->__state;
}

#endif
