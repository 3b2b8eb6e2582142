/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reads a PostgreSQL backend's replies. */
#ifndef QJOULE_POSTGRES_REPLY_BPF_H
#define QJOULE_POSTGRES_REPLY_BPF_H

#include "core/state.bpf.h"

/*
 * Takes the outcome of the request that the backend has finished. If several requests came in one
 * read, only the last reply is there, so nothing is taken. Returns whether the reply begins with an
 * error.
 *
 * In reply.bpf.c: the verifier checks it once. Inlined, it took the verifier seconds.
 */
extern int postgres_answered(struct thread_state *thread);

#endif
