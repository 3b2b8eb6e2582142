/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a PostgreSQL backend has answered. */
#ifndef QJOULE_POSTGRES_REPLY_BPF_H
#define QJOULE_POSTGRES_REPLY_BPF_H

#include "core/state.bpf.h"

/*
 * Takes what the backend said of the request that it has done. If several requests came in one
 * read, only the last reply is there, so nothing is taken. Returns 0.
 *
 * In reply.bpf.c: the verifier looks at it once. Inlined it took the verifier seconds.
 */
extern int postgres_answered(struct thread_state *thread);

#endif
