/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Queries that leave their thread: PostgreSQL's parallel workers, MariaDB's suspended commands. */
#ifndef QJOULE_PARALLEL_BPF_H
#define QJOULE_PARALLEL_BPF_H

#include "state.bpf.h"

struct leader {
	__u64 query;
	__u64 shape;
	__u64 tags;
	__u64 session;
};

/* What whoever helps this thread works for. */
static __always_inline struct leader leader_of(const struct thread_state *thread)
{
	return (struct leader){.query = thread->query,
			       .shape = thread->shape,
			       .tags = thread->tags,
			       .session = thread->session};
}

struct leaders_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* process id of the leader */
	__type(value, struct leader);
};
extern struct leaders_map leaders SEC(".maps");

struct suspended_query {
	__u64 query;
	__u64 begin_ns;
	__u64 shape;
	__u64 reply_addr;
	__u64 tags;
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 command;
	__u8 reserved[3];
};

struct suspended_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* session */
	__type(value, struct suspended_query);
};
extern struct suspended_map suspended SEC(".maps");

#endif
