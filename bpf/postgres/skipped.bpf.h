/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Messages that a PostgreSQL backend skips after an error. */
#ifndef QJOULE_POSTGRES_SKIPPED_BPF_H
#define QJOULE_POSTGRES_SKIPPED_BPF_H

#include "core/query.bpf.h"

/*
 * After an error in a message of the extended protocol, the server skips all messages up to the
 * next Sync. The backend has failed now, at a message after which `left` bytes of its last read
 * remain. What it skips was counted when it was read. Returns 0.
 */
extern int postgres_skip(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 left);

#endif
