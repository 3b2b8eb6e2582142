/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Connections of replicas. From START_REPLICATION on, a PostgreSQL backend sends its log for as
 * long as the replica listens. That is the server's work and no query. PostgreSQL documentation,
 * "Streaming Replication Protocol".
 */
#ifndef QJOULE_POSTGRES_STREAM_BPF_H
#define QJOULE_POSTGRES_STREAM_BPF_H

#include "core/query.bpf.h"

#define POSTGRES_START_RE 0x65725f7472617473ULL /* "start_re", little-endian */
#define POSTGRES_LOWER	  0x2020002020202020ULL /* sets its letters to lower case */

static __always_inline bool postgres_streams(__u64 text)
{
	__u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (const void *)text);
	return (word | POSTGRES_LOWER) == POSTGRES_START_RE;
}

static __always_inline void postgres_stream_begin(struct qj_cpu_state *cpu,
						  struct thread_state *thread, __u64 now)
{
	const struct role_name role = {"walsender"};

	thread->postgres.dumps = 1;
	emit_role(cpu, thread, &role);
	query_release(cpu, thread, now);
}

static __always_inline void postgres_stream_end(struct qj_cpu_state *cpu,
						struct thread_state *thread)
{
	const struct role_name role = {"backend"};

	if (!thread->postgres.dumps)
		return;
	thread->postgres.dumps = 0;
	emit_role(cpu, thread, &role);
}

#endif
