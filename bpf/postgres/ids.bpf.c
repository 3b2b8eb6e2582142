// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The queryid of a statement, only if the user asks for it. A backend calls
 * pgstat_report_query_id(id, force) when it has analysed a statement and when it starts to execute
 * one (src/backend/utils/activity/backend_status.c, from 14 on), if it computes ids at all
 * (compute_query_id). Like the backend itself, this takes the first id of a statement: later ones
 * are of statements within it. With `force`, another statement of the same text begins.
 */
#include "core/statement.bpf.h"
#include "session.bpf.h"

static __always_inline void tell(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 id)
{
	static const __u8 yes = 1;
	struct qj_told_id told = {.shape = thread->shape, .id = id};
	__u64 key = session_of(session_of(id) ^ thread->shape) ?: 1;
	struct qj_ring_text *r;

	if (thread->postgres.last_id == key)
		return;
	thread->postgres.last_id = key;
	if (bpf_map_lookup_elem(&seen, &key))
		return;
	r = reserve_text(sizeof(told));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->postgres.last_id = 0;
		return;
	}
	fill_text(r, key, sizeof(told), sizeof(told), thread->server, QJ_DIALECT_POSTGRES_QUERY_ID);
	__builtin_memcpy(r->bytes, &told, sizeof(told));
	submit(r);
	bpf_map_update_elem(&seen, &key, &yes, BPF_ANY);
}

SEC("?uprobe")
int BPF_KPROBE(postgres_query_id, __u64 id, __u8 force)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || !thread->begin_ns || thread->borrowed)
		return 0;
	if (force)
		thread->postgres.has_id = 0;
	if (!id || thread->postgres.has_id)
		return 0;
	thread->postgres.has_id = 1;
	if (!thread->shape ||
	    (thread->rung == QJ_RUNG_SOCKET && thread->shape != thread->postgres.first_shape))
		return 0;
	tell(this_cpu(), thread, id);
	return 0;
}
