/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Global variables of a PostgreSQL backend, at known distances from the start of its data. */
#ifndef QJOULE_POSTGRES_DATA_BPF_H
#define QJOULE_POSTGRES_DATA_BPF_H

#include "core/query.bpf.h"

/* Reads a variable of the current backend. Returns 0, or a negative number: it is not known. */
static __always_inline long postgres_variable(void *to, __u32 bytes, __u32 distance)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!distance)
		return -1;
	return bpf_probe_read_user(to, bytes,
				   (const void *)(BPF_CORE_READ(task, mm, start_data) + distance));
}

#endif
