/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Commands that a thread pool has suspended: another thread may resume them. */
#ifndef QJOULE_MYSQL_SUSPENDED_BPF_H
#define QJOULE_MYSQL_SUSPENDED_BPF_H

#include "core/query.bpf.h"

struct suspended_query {
	__u64 query;
	__u64 begin_ns;
	__u64 shape;
	__u64 reply_addr;
	__u64 tags;
	__u64 cpu_ns;
	__u64 since_ns;
	__u64 wait_ns[QJ_WAITS];
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

/* Resumes a suspended command, which may have begun on another thread. */
static __always_inline bool resume(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	struct suspended_query *was = bpf_map_lookup_elem(&suspended, &thread->session);

	if (!was)
		return false;
	thread->query = was->query;
	thread->begin_ns = was->begin_ns;
	thread->shape = was->shape;
	thread->mysql.reply_addr = was->reply_addr;
	thread->tags = was->tags;
	thread->cpu_ns = was->cpu_ns;
	thread->executions = was->executions;
	thread->flags = was->flags | QJ_QUERY_RESUMED;
	thread->statement_bytes = was->statement_bytes;
	thread->command = was->command;
	__builtin_memcpy(thread->waits.ns, was->wait_ns, sizeof(was->wait_ns));
	thread->waits.any = 1;
	claim_slice(cpu, thread, now);
	/* It has waited for a thread of the pool. */
	thread->waits.ns[QJ_WAIT_OTHER] += slice_began(cpu, now) - was->since_ns;
	bpf_map_delete_elem(&suspended, &thread->session);
	return true;
}

static __always_inline void suspend(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 now)
{
	struct suspended_query is;

	end_slice(cpu, now);
	settle_expired(&thread->waits, QJ_WAIT_SLEEP);
	is = (struct suspended_query){
	    .query = thread->query,
	    .begin_ns = thread->begin_ns,
	    .shape = thread->shape,
	    .reply_addr = thread->mysql.reply_addr,
	    .tags = thread->tags,
	    .cpu_ns = thread->cpu_ns,
	    .since_ns = slice_began(cpu, now),
	    .executions = thread->executions,
	    .flags = thread->flags,
	    .statement_bytes = thread->statement_bytes,
	    .command = thread->command,
	};
	__builtin_memcpy(is.wait_ns, thread->waits.ns, sizeof(is.wait_ns));
	bpf_map_update_elem(&suspended, &thread->session, &is, BPF_ANY);
	query_release(cpu, thread, now);
}

#endif
