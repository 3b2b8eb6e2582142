// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The queryid of a statement, only if the user asks for it. The server has it in the plan that
 * PortalRun(portal) executes, if it computes ids at all (compute_query_id; from 14 on). A second
 * program on the function where the attach mode `symbol` counts executions: other functions that
 * pass a queryid begin with instructions that a probe has to single-step, or are not passed by
 * every execution. PostgreSQL 14-18: src/include/utils/portal.h, nodes/pg_list.h,
 * nodes/plannodes.h.
 */
#include "core/statement.bpf.h"
#include "next_read.bpf.h"

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

#define PORTAL_START_TO_CREATED 16 /* from atStart to creation_time: struct portal_state */

/* List, src/include/nodes/pg_list.h */
struct list {
	__u32 type;
	__u32 length;
	__u64 reserved;
	__u64 elements;
};

/* Of a portal with several statements (rules) none is the client's alone. */
static __always_inline __u64 id_of(const volatile __u64 *facts, __u64 portal)
{
	__u64 at = 0, statement = 0, id = 0;
	struct list list = {};

	bpf_probe_read_user(&at, sizeof(at),
			    (const void *)(portal + facts[QJ_POSTGRES_PORTAL_PLANS]));
	bpf_probe_read_user(&list, sizeof(list), (const void *)at);
	if (list.length != 1)
		return 0;
	bpf_probe_read_user(&statement, sizeof(statement), (const void *)list.elements);
	bpf_probe_read_user(&id, sizeof(id),
			    (const void *)(statement + facts[QJ_POSTGRES_QUERY_ID]));
	return id;
}

/*
 * Beside reads of sockets, sockets.bpf.c begins the query at the same function and notes the time
 * of the portal's message. If that program has not run yet, the shape is another statement's.
 */
static __always_inline bool begun(const struct thread_state *thread, const volatile __u64 *facts,
				  __u64 portal)
{
	__u64 created = 0;

	if (thread->attach_mode != QJ_ATTACH_SYMBOL || !facts[QJ_POSTGRES_NEXT_READ])
		return true;
	portal += facts[QJ_POSTGRES_PORTAL_START] + PORTAL_START_TO_CREATED;
	bpf_probe_read_user(&created, sizeof(created), (const void *)portal);
	return thread->postgres.ran && thread->postgres.created == created;
}

/* PortalRun(Portal portal, long count, bool isTopLevel, ...) */
SEC("?uprobe")
int BPF_KPROBE(postgres_query_id, __u64 portal, __u64 count, __u8 top_level)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	const volatile __u64 *facts;
	__u64 id;

	if (!thread || !thread->begin_ns || thread->borrowed || !thread->shape ||
	    thread->flags & QJ_QUERY_NO_TEXT || !top_level)
		return 0;
	facts = facts_of(thread);
	if (!facts[QJ_POSTGRES_PORTAL_PLANS] || !facts[QJ_POSTGRES_QUERY_ID] ||
	    !begun(thread, facts, portal))
		return 0;
	id = id_of(facts, portal);
	if (id)
		tell(this_cpu(), thread, id);
	return 0;
}
