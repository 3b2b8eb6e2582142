/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The text of a statement that was prepared before tracing began, on the rung `socket`. */
#ifndef QJOULE_POSTGRES_SLOT_BPF_H
#define QJOULE_POSTGRES_SLOT_BPF_H

#include "core/state.bpf.h"

/*
 * The backend has finished a request whose last statement is unknown: reads its text, and learns it
 * under the statement's name. Returns 0. In slot.bpf.c, so that the verifier checks it once.
 */
extern int postgres_find_text(struct qj_cpu_state *cpu, struct thread_state *thread);

#endif
