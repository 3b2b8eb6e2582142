/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Statements that a backend prepared before tracing began, on the rung `socket`. */
#ifndef QJOULE_POSTGRES_PREPARED_BPF_H
#define QJOULE_POSTGRES_PREPARED_BPF_H

#include "core/state.bpf.h"

/*
 * Looks up the prepared statement whose name is at `addr`, and gives its text to the thread's
 * request. Returns the text's length. If the backend has no such statement, nothing changes: 0. The
 * caller reads the tags: from here they would be one call too deep for the stack.
 *
 * In prepared.bpf.c, so that the verifier checks it once.
 */
extern int postgres_find_prepared(struct qj_cpu_state *cpu, struct thread_state *thread,
				  __u64 addr);

#endif
