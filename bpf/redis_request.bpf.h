/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A connection's request, from the bytes that are read to its record: the same whichever thread of
 * the Redis reads or answers it.
 */
#ifndef QJOULE_REDIS_REQUEST_BPF_H
#define QJOULE_REDIS_REQUEST_BPF_H

#include "redis_wire.bpf.h"

/* Tells a request that has been answered, or that the next one follows. */
static __always_inline void redis_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct redis_connection *request, __u64 now)
{
	__u64 query = thread->query, begin_ns = thread->begin_ns, shape = thread->shape;

	thread->query = request->query;
	thread->begin_ns = request->begin_ns;
	thread->session = request->session;
	thread->shape = request->shape;
	thread->executions = request->executions;
	thread->flags = request->flags;
	thread->statement_bytes = request->statement_bytes;
	thread->command = QJ_COMMAND_QUERY;
	if (request->runs > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
	query_end(cpu, thread, now);
	request->waits = 0;
	thread->query = query;
	thread->begin_ns = begin_ns;
	thread->shape = shape;
}

static __always_inline void redis_request(struct qj_cpu_state *cpu,
					  struct redis_connection *request, __u64 now)
{
	request->query = new_id(cpu);
	request->begin_ns = now;
	request->shape = 0;
	request->last_shape = 0;
	request->executions = 0;
	request->flags = 0;
	request->statement_bytes = 0;
	request->runs = 0;
	request->waits = 1;
}

static __always_inline void redis_emit_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					    const struct redis_connection *request,
					    struct redis_text *text)
{
	static const __u8 yes = 1;
	__u64 shape = request->shape;
	struct qj_ring_text *r;
	__u32 bytes;

	if (!shape || bpf_map_lookup_elem(&seen, &shape))
		return;
	if (!text->used)
		redis_tell(text, &request->command);
	bytes = at_most(text->used, REDIS_TEXT_BYTES);
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return;
	}
	bpf_probe_read_kernel(r->bytes, REDIS_TEXT_BYTES, text->bytes);
	fill_text(r, shape, bytes, bytes + (request->flags & QJ_QUERY_TRUNCATED ? 1 : 0),
		  thread->server, QJ_DIALECT_REDIS);
	submit(r);
	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
}

/* Adds the commands in what was read to the connection's request. */
static __always_inline void redis_take(struct qj_cpu_state *cpu, struct thread_state *thread,
				       struct redis_connection *request, __u64 addr, __u32 bytes)
{
	__u32 zero = 0;
	struct redis_text *text = bpf_map_lookup_elem(&redis_texts, &zero);
	struct redis_walk walk = {
	    .connection = request,
	    .text = text,
	    .addr = addr,
	    .left = bytes,
	};

	if (!text)
		return;
	text->used = 0;
	bpf_loop(REDIS_WALK_MAX, redis_step, &walk, 0);
	if (walk.lost || walk.left) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		request->command.at = REDIS_AT_UNKNOWN;
	}
	request->statement_bytes += bytes;
	if (request->runs)
		redis_emit_text(cpu, thread, request, text);
}

/* The thread's session is that of the request which it still serves, perhaps of another client. */
static __always_inline void redis_tell_session(struct qj_cpu_state *cpu,
					       struct thread_state *thread,
					       const struct redis_connection *connection,
					       struct sock *sk, __u32 event)
{
	thread->socket = (__u64)sk;
	emit_session_of(cpu, thread, connection->session, event, 0, 0);
}

static __always_inline struct redis_connection *
redis_connect(struct qj_cpu_state *cpu, struct thread_state *thread, struct sock *sk)
{
	struct redis_connection *connection =
	    bpf_sk_storage_get(&redis_connections, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!connection) {
		count_loss(cpu, QJ_LOSS_STATE);
		return 0;
	}
	if (!connection->session) {
		connection->session = new_id(cpu);
		redis_tell_session(cpu, thread, connection, sk, QJ_SESSION_MET);
		if (thread->phase == PHASE_STARTUP)
			redis_next_command(&connection->command);
	}
	return connection;
}

/*
 * Whether what is read now continues what was read before, or can be begun with. A connection that
 * was open before tracing is joined between two commands.
 */
static __always_inline bool redis_in_step(struct qj_cpu_state *cpu, struct thread_state *thread,
					  struct redis_connection *connection, struct sock *sk,
					  __u64 addr, __u32 bytes)
{
	__u8 first = 0;

	bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (!connection->query && first == REDIS_TLS_HANDSHAKE) {
		connection->opaque = 1;
		count_loss(cpu, QJ_LOSS_OPAQUE_SESSION);
		redis_tell_session(cpu, thread, connection, sk, QJ_SESSION_OPAQUE);
		return true;
	}
	if (connection->command.at == REDIS_AT_UNKNOWN && redis_begins(addr, bytes))
		redis_next_command(&connection->command);
	return connection->command.at != REDIS_AT_UNKNOWN;
}

#endif
