// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The attach mode `agent`. Java code added to the server calls empty native functions where a
 * thread starts and ends its work for a request, and where a task of the request goes to another
 * thread (agent/jni/marker.c). Probes are attached to these functions.
 */
#include "core/statement.bpf.h"

/* Maps for the numbers that the agent passes; only for servers in attach mode `agent`. */

/* Each server numbers independently. */
struct agent_key {
	__u64 number;
	__u64 tgid;
};

struct agent_statements_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct agent_key);
	__type(value, struct prepared_statement);
};
struct agent_statements_map agent_statements SEC(".maps");

/* Requests that have passed a task to another thread. */
struct agent_requests_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct agent_key);
	__type(value, struct leader);
};
struct agent_requests_map agent_requests SEC(".maps");

static __always_inline struct thread_state *marked_thread(void)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	return thread && thread->attach_mode == QJ_ATTACH_AGENT ? thread : 0;
}

static __always_inline struct agent_key agent_key(__u64 number)
{
	struct agent_key key = {.number = number, .tgid = bpf_get_current_pid_tgid() >> 32};

	return key;
}

/* Gives the thread's query the shape of the earlier statement with this number. */
static __always_inline bool recall(struct thread_state *thread, __u64 statement)
{
	struct agent_key key = agent_key(statement);
	struct prepared_statement *known = bpf_map_lookup_elem(&agent_statements, &key);

	if (!known)
		return false;
	thread->shape = known->shape;
	thread->statement_bytes = known->statement_bytes;
	thread->flags |= known->flags;
	return true;
}

static __always_inline void learn(const struct thread_state *thread, __u64 statement)
{
	struct agent_key key = agent_key(statement);
	struct prepared_statement value = {
	    .shape = thread->shape,
	    .statement_bytes = thread->statement_bytes,
	    .flags = thread->flags & QJ_QUERY_TRUNCATED,
	};

	/* A text that was lost in sending must be read again. */
	if (thread->shape && was_seen(thread->shape))
		bpf_map_update_elem(&agent_statements, &key, &value, BPF_ANY);
}

/* Both ends of a connection, which its client knows too. */
struct agent_ends {
	__u8 client[16];
	__u8 server[16];
	__u16 client_port;
	__u16 server_port;
};

SEC("?uprobe")
int BPF_KPROBE(cassandra_connection_met, __u64 session, __u64 addr)
{
	struct thread_state *thread = marked_thread();
	struct qj_ring_session *r;
	struct agent_ends ends;

	if (!thread || bpf_probe_read_user(&ends, sizeof(ends), (const void *)addr))
		return 0;
	r = reserve_session(this_cpu(), thread, QJ_SESSION_MET);
	if (!r)
		return 0;
	r->session.session =
	    session_of(session); /* the thread's session is still that of its last request */
	__builtin_memcpy(r->session.address, ends.client, sizeof(ends.client));
	__builtin_memcpy(r->session.server_address, ends.server, sizeof(ends.server));
	r->session.port = ends.client_port;
	r->session.server_port = ends.server_port;
	submit(r);
	return 0;
}

/*
 * `what`: bits 0-7 enum qj_command, bits 8-39 the number of executions, bits 40 and up the
 * request's number on its connection.
 */
SEC("?uprobe")
int BPF_KPROBE(cassandra_request_begins, __u64 text, __u64 bytes, __u64 statement, __u64 session,
	       __u64 what)
{
	struct thread_state *thread = marked_thread();
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	/* In case the end of the last request, or task, was missed. */
	helper_leave(cpu, thread, now);
	query_abandon(cpu, thread, now);
	thread->session = session_of(session);
	query_begin(cpu, thread, now);
	thread->command = what;
	thread->executions = what >> 8;
	thread->stream = what >> 40;
	if (!text) {
		if (thread->command != QJ_COMMAND_OTHER)
			thread->flags |= QJ_QUERY_NO_TEXT;
	} else if (!statement || !recall(thread, statement)) {
		statement_begin(thread, QJ_DIALECT_CQL, QJ_SHAPE_SLASHED, text, bytes);
		statement_feed(cpu, thread, text, bytes);
		if (statement)
			learn(thread, statement);
	}
	label_query(cpu, thread);
	return 0;
}

/* Called after the marker above if the client sent tags and plan.tags is set. */
SEC("?uprobe")
int BPF_KPROBE(cassandra_request_says, __u64 tags, __u64 bytes)
{
	struct thread_state *thread = marked_thread();

	if (plan.tags && thread && thread->begin_ns && !thread->borrowed)
		tags_emit(this_cpu(), thread, tags, bytes, QJ_DIALECT_PAYLOAD);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(cassandra_request_ends)
{
	struct thread_state *thread = marked_thread();
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now;

	if (!thread || !thread->begin_ns || thread->borrowed)
		return 0;
	now = bpf_ktime_get_ns();
	query_end(cpu, thread, now);
	query_release(cpu, thread, now);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(cassandra_task_queued, __u64 request)
{
	struct thread_state *thread = marked_thread();
	struct agent_key key = agent_key(request);
	struct leader leader;

	if (!thread || !thread->begin_ns)
		return 0;
	leader = leader_of(thread);
	bpf_map_update_elem(&agent_requests, &key, &leader, BPF_ANY);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(cassandra_task_begins, __u64 request)
{
	struct thread_state *thread = marked_thread();
	struct agent_key key = agent_key(request);
	struct leader *leader = bpf_map_lookup_elem(&agent_requests, &key);

	/* Queued before tracing began, or too long ago: counts as the server's background. */
	if (!thread || !leader || thread->begin_ns)
		return 0;
	leader_join(this_cpu(), thread, leader);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(cassandra_task_ends)
{
	struct thread_state *thread = marked_thread();
	__u64 now = bpf_ktime_get_ns();

	if (!thread || !thread->borrowed)
		return 0;
	helper_leave(this_cpu(), thread, now);
	query_release(this_cpu(), thread, now);
	return 0;
}
