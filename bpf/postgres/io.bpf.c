// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * From PostgreSQL 18 on, io workers read on behalf of backends. A backend calls
 * pgaio_io_prepare_submit(handle) before it queues a request; a worker calls
 * pgaio_io_reopen(handle) before it performs one (src/backend/storage/aio: aio.c, aio_target.c,
 * method_worker.c). Both get the handle's address, so a worker works for the query of the backend
 * whose request it takes, until it takes another one or waits for one. Used in every attach mode.
 */
#include "core/query.bpf.h"

/* A PgAioHandle is in shared memory, at the same address in all processes of a server. */
struct io_handle {
	__u64 address;
	__u64 server;
};

struct io_leaders_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct io_handle);
	__type(value, struct leader);
};
struct io_leaders_map io_leaders SEC(".maps");

/* A backend is about to submit a request, or to perform it by itself. */
SEC("?uprobe")
int BPF_KPROBE(postgres_io_submit, __u64 handle)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct io_handle key = {.address = handle};
	struct leader leader;

	if (!thread)
		return 0;
	key.server = thread->server;
	if (!thread->begin_ns) { /* for no query: delete an earlier query's entry */
		bpf_map_delete_elem(&io_leaders, &key);
		return 0;
	}
	leader = leader_of(thread);
	bpf_map_update_elem(&io_leaders, &key, &leader, BPF_ANY);
	return 0;
}

/* A worker takes the request. It woke up for it: no other query owns the open slice then. */
static __always_inline void join(struct qj_cpu_state *cpu, struct thread_state *thread,
				 const struct leader *leader, __u64 now)
{
	check_label(cpu, now);
	if (cpu->owner_kind == QJ_OWNER_SERVER && !cpu->query)
		cpu->query = leader->query;
	leader_join(cpu, thread, leader);
}

SEC("?uprobe")
int BPF_KPROBE(postgres_io_begin, __u64 handle)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct io_handle key = {.address = handle};
	__u64 now = bpf_ktime_get_ns();
	struct leader *leader;

	if (!thread)
		return 0;
	key.server = thread->server;
	thread->postgres.io_worker = 1;
	leader = bpf_map_lookup_elem(&io_leaders, &key);
	if (leader) {
		join(this_cpu(), thread, leader, now);
		bpf_map_delete_elem(&io_leaders, &key);
	} else if (thread->query) {
		helper_leave(this_cpu(), thread, now);
		query_release(this_cpu(), thread, now);
	}
	return 0;
}
