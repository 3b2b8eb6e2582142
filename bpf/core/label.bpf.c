// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements label.bpf.h for programs other than the context switch; query.bpf.h declares it. */
#include "label.bpf.h"

int relabel(struct qj_cpu_state *cpu, __u64 now)
{
	if (!cpu)
		return 0;
	end_slice(cpu, now);
	count_loss(cpu, QJ_LOSS_SWITCH);
	label_slice(cpu, bpf_get_current_task_btf(), now);
	return 0;
}
