/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A connection's request, from the bytes that are read to its record: the same whichever thread of
 * the Redis reads or answers it.
 */
#ifndef QJOULE_REDIS_REQUEST_BPF_H
#define QJOULE_REDIS_REQUEST_BPF_H

#include "wire.bpf.h"
#include "core/syscall.bpf.h"

/* Tells a request that has been answered, or that the next one follows. */
static __always_inline void redis_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct redis_connection *request, __u64 now)
{
	__u64 query = thread->query, begin_ns = thread->begin_ns, shape = thread->shape;
	__u64 session = thread->session;

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
	request->waits = REDIS_WAITS_NOT;
	thread->query = query;
	thread->begin_ns = begin_ns;
	thread->shape = shape;
	thread->session = session;
}

static __always_inline void redis_request(struct qj_cpu_state *cpu,
					  struct redis_connection *request, bool behind, __u64 now)
{
	request->query = new_id(cpu);
	request->begin_ns = now;
	request->shape = 0;
	request->last_shape = 0;
	request->executions = 0;
	request->flags = 0;
	request->statement_bytes = 0;
	request->runs = 0;
	request->waits = behind ? REDIS_WAITS_BEHIND : REDIS_WAITS;
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

/*
 * What the connection is called, if that is asked for. A name that an earlier request gave it and
 * that no reply has told of counts now.
 */
static __always_inline struct redis_naming *redis_naming_of(struct qj_cpu_state *cpu,
							    struct thread_state *thread,
							    struct redis_connection *connection,
							    struct sock *sk)
{
	struct redis_naming *n;

	if (!plan.tags)
		return 0;
	n = bpf_sk_storage_get(&redis_namings, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!n) {
		count_loss(cpu, QJ_LOSS_STATE);
		return 0;
	}
	n->session = connection->session;
	if (n->state == REDIS_NAME_ASKED)
		redis_name_tell(cpu, thread, n);
	return n;
}

/* The reply to a request is being sent, which perhaps says what became of a name. */
static __always_inline void redis_named(struct qj_cpu_state *cpu, struct thread_state *thread,
					struct redis_connection *request, struct sock *sk,
					struct task_struct *task, __u32 bytes)
{
	bool is_its_own = request->waits == REDIS_WAITS && request->executions == 1;
	struct redis_naming *n;

	if (!plan.tags || !request->naming || !request->waits)
		return;
	n = bpf_sk_storage_get(&redis_namings, sk, 0, 0);
	if (!n)
		return;
	redis_name_answered(cpu, thread, n, is_its_own ? sent_from(task, bytes) : 0);
	request->naming = n->state != REDIS_NAME_SETTLED;
}

/* Adds the commands in what was read to the connection's request. */
static __always_inline void redis_take(struct qj_cpu_state *cpu, struct thread_state *thread,
				       struct redis_connection *request, struct sock *sk,
				       __u64 addr, __u32 bytes)
{
	__u32 zero = 0;
	struct redis_text *text = bpf_map_lookup_elem(&redis_texts, &zero);
	struct redis_walk walk = {
	    .cpu = cpu,
	    .thread = thread,
	    .connection = request,
	    .naming = redis_naming_of(cpu, thread, request, sk),
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
	if (plan.tags && walk.naming)
		request->naming = walk.naming->state != REDIS_NAME_SETTLED;
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

/*
 * Whether the `got` bytes that have just been read are the first ones ever of this connection. TCP
 * counts what came; what the server has not read of it yet lies behind copied_seq.
 */
static __always_inline bool redis_reads_first(const struct sock *sk, __u32 got)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;
	__u32 unread;

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return false;
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq);
	return BPF_CORE_READ(tcp, bytes_received) == (__u64)got + unread;
}

static __always_inline struct redis_connection *
redis_connect(struct qj_cpu_state *cpu, struct thread_state *thread, struct sock *sk, __u32 got)
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
		if (thread->phase == PHASE_STARTUP || redis_reads_first(sk, got))
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
