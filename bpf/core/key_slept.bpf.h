/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The end of a thread's turn, as defined in key_request.bpf.h. */
#ifndef QJOULE_KEY_SLEPT_BPF_H
#define QJOULE_KEY_SLEPT_BPF_H

#include "state.bpf.h"

/*
 * A thread does not sleep while it executes commands. After a sleep, the request that it last read
 * is either done or blocked until another client wakes it.
 */
static __always_inline void key_forget_if_slept(struct thread_state *thread, struct key_turn *turn,
						struct task_struct *task)
{
	if (turn->sleeps == TASK_FIELD(task, nvcsw))
		return;
	turn->sleeps = TASK_FIELD(task, nvcsw);
	turn->unanswered = 0;
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
}

#endif
