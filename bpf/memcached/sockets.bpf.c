// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * memcached: each worker thread serves many connections, and a connection stays with its thread. A
 * worker reads requests, executes them and writes their replies, then reads again until there is
 * nothing more to read (memcached.c, drive_machine()). So a request without a reply ("noreply",
 * quiet binary commands) ends at the read that finds nothing.
 *
 * Requests over UDP are not parsed. Each datagram is counted as lost framing.
 */
#include "wire.bpf.h"
#include "core/socket.bpf.h"

struct memcached_connections_map memcached_connections SEC(".maps");

static __always_inline struct thread_state *memcached_thread_of(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);

	return thread && thread->server_kind == QJ_SERVER_MEMCACHED ? thread : 0;
}

static __always_inline struct memcached_connection *
memcached_connect(struct qj_cpu_state *cpu, struct thread_state *thread, struct sock *sk, __u32 got)
{
	struct memcached_connection *connection =
	    bpf_sk_storage_get(&memcached_connections, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!connection) {
		count_loss(cpu, QJ_LOSS_STATE);
		return 0;
	}
	if (!connection->request.session) {
		connection->request.session = new_id(cpu);
		key_emit_session(cpu, thread, &connection->request, sk, QJ_SESSION_MET);
		if (thread->phase == PHASE_STARTUP || key_reads_first(sk, got))
			memcached_next_command(&connection->command);
	}
	return connection;
}

/* Whether these bytes continue the earlier ones, or are a point where reading can begin. */
static __always_inline bool memcached_in_step(struct qj_cpu_state *cpu, struct thread_state *thread,
					      struct memcached_connection *connection,
					      struct sock *sk, __u64 addr, __u32 bytes)
{
	__u8 first = 0;

	bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (!connection->request.query && first == MEMCACHED_TLS_HANDSHAKE) {
		key_opaque(cpu, thread, &connection->request, sk);
		return true;
	}
	if (connection->command.at == MEMCACHED_AT_UNKNOWN && memcached_begins(addr, bytes))
		memcached_next_command(&connection->command);
	return connection->command.at != MEMCACHED_AT_UNKNOWN;
}

/* Adds the commands in these bytes to the connection's request. */
static __always_inline void memcached_take(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct memcached_connection *connection, __u64 addr,
					   __u32 bytes)
{
	struct key_text *text = key_text_of_cpu();
	struct memcached_walk walk = {
	    .connection = connection, .text = text, .addr = addr, .left = bytes};

	if (!text)
		return;
	text->used = 0;
	bpf_loop(MEMCACHED_WALK_MAX, memcached_step, &walk, 0);
	if (walk.left) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		connection->command.at = MEMCACHED_AT_UNKNOWN;
	}
	connection->request.statement_bytes += bytes;
	if (connection->request.runs)
		key_emit_text(cpu, thread, &connection->request, &connection->command.kept, text,
			      QJ_DIALECT_MEMCACHED);
}

/* Nothing to read, or the client has disconnected: a request without a reply ends here. */
static __always_inline void memcached_idle(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct sock *sk, int got)
{
	struct memcached_connection *connection =
	    bpf_sk_storage_get(&memcached_connections, sk, 0, 0);
	struct key_request *request;

	if (!connection)
		return;
	request = &connection->request;
	if (!request->waits || !request->executions)
		return;
	if (!got)
		key_left(cpu, thread, request);
	else
		key_answered(cpu, thread, request, bpf_ktime_get_ns());
	if (thread->query == request->query)
		key_release(cpu, thread, false, 0);
}

static __always_inline void memcached_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = memcached_thread_of(task);
	struct memcached_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr, now;

	if (!thread || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (got <= 0) {
		memcached_idle(cpu, thread, sk, got);
		return;
	}
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	connection = memcached_connect(cpu, thread, sk, got);
	if (!connection || connection->request.opaque)
		return;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (!addr || !memcached_in_step(cpu, thread, connection, sk, addr, got)) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	if (connection->request.opaque)
		return;
	key_next_request(cpu, thread, &connection->request, now);
	key_claim(cpu, thread, &connection->request, now);
	thread->memcached.turn.sleeps = task->nvcsw;
	memcached_take(cpu, thread, connection, addr, got);
	thread->shape = connection->request.shape;
	label_query(cpu, thread);
}

READS(memcached, memcached_reads)

static __always_inline void memcached_writes(struct sock *sk, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = memcached_thread_of(task);
	struct memcached_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || sent <= 0)
		return;
	connection = bpf_sk_storage_get(&memcached_connections, sk, 0, 0);
	if (!connection || !connection->request.query)
		return;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	/* A long reply or a pipeline continues after other connections had their turn. */
	if (!thread->query && key_is_open(cpu))
		key_claim(cpu, thread, &connection->request, now);
	/* A request without a complete command cannot be the one that this reply answers. */
	if (connection->request.waits && connection->request.executions)
		key_answered(cpu, thread, &connection->request, now);
	key_release(cpu, thread, false, now);
}

WRITES(memcached, memcached_writes)
