/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A connection's request, from the bytes that are read to its record. The same for all threads of
 * Redis that read or answer it.
 */
#ifndef QJOULE_REDIS_REQUEST_BPF_H
#define QJOULE_REDIS_REQUEST_BPF_H

#include "wire.bpf.h"
#include "core/socket.bpf.h"

/*
 * The connection's naming state, if requested. A name from an earlier request whose outcome no
 * reply has shown counts from here on.
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
	n->session = connection->request.session;
	if (n->state == REDIS_NAME_ASKED)
		redis_name_emit(cpu, thread, n);
	return n;
}

/* The reply to a request is being sent; it may show whether a name was accepted. */
static __always_inline void redis_named(struct qj_cpu_state *cpu, struct thread_state *thread,
					struct redis_connection *connection, struct sock *sk,
					struct task_struct *task, __u32 bytes)
{
	const struct key_request *request = &connection->request;
	bool is_its_own = request->waits == KEY_WAITS && request->executions == 1;
	struct redis_naming *n;

	if (!plan.tags || !connection->naming || !request->waits)
		return;
	n = bpf_sk_storage_get(&redis_namings, sk, 0, 0);
	if (!n)
		return;
	redis_name_answered(cpu, thread, n, is_its_own ? sent_from(task, bytes) : 0);
	connection->naming = n->state != REDIS_NAME_SETTLED;
}

/* Adds the commands in these bytes to the connection's request. */
static __always_inline void redis_take(struct qj_cpu_state *cpu, struct thread_state *thread,
				       struct redis_connection *connection, struct sock *sk,
				       __u64 addr, __u32 bytes)
{
	struct key_text *text = key_text_of_cpu();
	struct redis_walk walk = {
	    .cpu = cpu,
	    .thread = thread,
	    .connection = connection,
	    .naming = redis_naming_of(cpu, thread, connection, sk),
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
		connection->command.at = REDIS_AT_UNKNOWN;
	}
	if (plan.tags && walk.naming)
		connection->naming = walk.naming->state != REDIS_NAME_SETTLED;
	connection->request.statement_bytes += bytes;
	if (connection->request.runs)
		key_emit_text(cpu, thread, &connection->request, &connection->command.kept, text,
			      QJ_DIALECT_REDIS);
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
	if (!connection->request.session) {
		connection->request.session = new_id(cpu);
		key_emit_session(cpu, thread, &connection->request, sk, QJ_SESSION_MET);
		if (thread->phase == PHASE_STARTUP || key_reads_first(sk, got))
			redis_next_command(&connection->command);
	}
	return connection;
}

/*
 * Whether these bytes continue the earlier ones, or are a point where reading can begin. Reading of
 * a connection that was already open begins between two commands.
 */
static __always_inline bool redis_in_step(struct qj_cpu_state *cpu, struct thread_state *thread,
					  struct redis_connection *connection, struct sock *sk,
					  __u64 addr, __u32 bytes)
{
	__u8 first = 0;

	bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (!connection->request.query && first == REDIS_TLS_HANDSHAKE) {
		key_opaque(cpu, thread, &connection->request, sk);
		return true;
	}
	if (connection->command.at == REDIS_AT_UNKNOWN && redis_begins(addr, bytes))
		redis_next_command(&connection->command);
	return connection->command.at != REDIS_AT_UNKNOWN;
}

#endif
