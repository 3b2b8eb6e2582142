// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Redis: one thread reads requests of many connections, executes them, and writes a turn's replies
 * at the end of that turn of its event loop. When the thread reads from a connection, it works for
 * that connection's request from then on. Writing a reply other than the turn's first is work for
 * the request that it answers. Between a sleep and the next read the thread works for the server.
 *
 * All commands of one read form one request: the socket does not show their shares.
 *
 * If io-threads read too (attach mode `statistical`), the main thread executes what several threads
 * have read, with no system call in between. Requests are then counted and timed, and none owns CPU
 * time.
 */
#include "wire.bpf.h"
#include "core/socket.bpf.h"

/*
 * A connection's request, from the bytes that are read to its record, for all threads of Redis that
 * read or answer it.
 */

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
	redis_read_start(text, addr, bytes);
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
	if (key_join(cpu, thread, &connection->request, sk, got))
		redis_next_command(&connection->command);
	return connection;
}

/*
 * True if these bytes continue the earlier ones, or start with a command. Reading of a connection
 * that was already open begins between two commands.
 */
static __always_inline bool redis_in_step(struct qj_cpu_state *cpu, struct thread_state *thread,
					  struct redis_connection *connection, struct sock *sk,
					  __u64 addr, __u32 bytes)
{
	__u8 first = 0;

	if (!connection->request.query)
		bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (first == REDIS_TLS_HANDSHAKE) {
		key_opaque(cpu, thread, &connection->request, sk);
		return true;
	}
	if (connection->command.at == REDIS_AT_UNKNOWN && redis_begins(addr, bytes))
		redis_next_command(&connection->command);
	return connection->command.at != REDIS_AT_UNKNOWN;
}

struct redis_connections_map redis_connections SEC(".maps");
struct redis_namings_map redis_namings SEC(".maps");

static __always_inline struct thread_state *redis_thread(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);

	return thread && thread->server_kind == QJ_SERVER_REDIS ? thread : 0;
}

/* True if this thread executes commands; io-threads read, write or free memory for it. */
static __always_inline bool executes(const struct task_struct *task)
{
	return task->pid == task->tgid;
}

/*
 * An io-thread has read although the plan expects none to: they can be started while the server
 * runs, and after a restart with other options. From here on its requests are counted, and none
 * owns CPU time. The main thread may work for its last request until it sleeps.
 */
static __always_inline void redis_use_statistical(struct task_struct *task,
						  struct thread_state *thread)
{
	struct thread_state *main = thread_of(task->group_leader);

	thread->attach_mode = QJ_ATTACH_STATISTICAL;
	if (main)
		main->attach_mode = QJ_ATTACH_STATISTICAL;
}

static __always_inline void redis_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task);
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr, now;
	bool owns;

	if (!thread || got < 0 || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (!got) {
		connection = bpf_sk_storage_get(&redis_connections, sk, 0, 0);
		if (connection)
			key_disconnected(cpu, thread, &connection->request);
		return;
	}
	if (owns_time(thread) && !executes(task))
		redis_use_statistical(task, thread);
	owns = owns_time(thread);
	connection = redis_connect(cpu, thread, sk, got);
	if (!connection || connection->request.opaque)
		return;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (!addr || !redis_in_step(cpu, thread, connection, sk, addr, got)) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	if (connection->request.opaque)
		return;
	if (key_next_request(cpu, thread, &connection->request, now))
		thread->redis.turn.unanswered++;
	if (owns) {
		key_claim(cpu, thread, &connection->request, now);
		thread->redis.turn.sleeps = task->nvcsw;
	}
	redis_take(cpu, thread, connection, sk, addr, got);
	if (owns) {
		thread->shape = connection->request.shape;
		label_query(cpu, thread);
	}
}

READS(redis, redis_reads)

/*
 * A reply: its connection's request was served. The first reply of a turn is written after the last
 * command was executed, so the slice stays with that command. The slices of the following replies
 * belong to the requests that they answer.
 */
static __always_inline void redis_writes(struct sock *sk, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task);
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || sent <= 0)
		return;
	connection = bpf_sk_storage_get(&redis_connections, sk, 0, 0);
	if (!connection || !connection->request.query)
		return;
	cpu = this_cpu();
	redis_named(cpu, thread, connection, sk, task, sent);
	now = bpf_ktime_get_ns();
	if (!executes(task) || !owns_time(thread)) {
		/* The main thread leaves this connection alone until the reply is sent. */
		if (connection->request.waits)
			key_answered(cpu, thread, &connection->request, now);
		return;
	}
	if (!thread->query && key_is_open(cpu))
		key_claim(cpu, thread, &connection->request, now);
	if (connection->request.waits) {
		if (thread->redis.turn.unanswered)
			thread->redis.turn.unanswered--;
		key_answered(cpu, thread, &connection->request, now);
	}
	key_release(cpu, thread, thread->redis.turn.unanswered != 0, now);
}

WRITES(redis, redis_writes)
