// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Redis: one thread reads requests of many connections, executes them, and writes the replies of a
 * turn of its event loop at the turn's end. What it reads tells which request it works for from
 * then on; a reply that is not the turn's first is work for the request that it answers; between
 * its sleeps and the next read it works for the server.
 *
 * A request is all commands of one read: nothing on the socket tells their shares apart.
 */
#include "redis_wire.bpf.h"
#include "syscall.bpf.h"

/* The thread that executes commands; others read, write or free memory for it. */
static __always_inline struct thread_state *redis_thread(struct task_struct *task)
{
	struct thread_state *thread = task->pid == task->tgid ? thread_of(task) : 0;

	return thread && thread->server_kind == QJ_SERVER_REDIS ? thread : 0;
}

/* Another thread of a Redis: one that reads or writes for it (io-threads). */
static __always_inline struct thread_state *redis_io_thread(struct task_struct *task)
{
	struct thread_state *thread = task->pid != task->tgid ? thread_of(task) : 0;

	return thread && thread->server_kind == QJ_SERVER_REDIS ? thread : 0;
}

static __always_inline bool is_open(const struct qj_cpu_state *cpu)
{
	return cpu->owner_kind == QJ_OWNER_SERVER && !cpu->query;
}

/* The open stretch belongs to this request: all of it, if nobody has claimed it so far. */
static __always_inline void redis_claim(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct redis_connection *request, __u64 now)
{
	check_label(cpu, now);
	if (!is_open(cpu) && cpu->query != request->query)
		end_stretch(cpu, now);
	cpu->query = request->query;
	cpu->shape = request->shape;
	cpu->owner_kind = QJ_OWNER_QUERY;
	thread->query = request->query;
	thread->shape = request->shape;
	thread->begin_ns = request->begin_ns;
}

/* From now on the thread works for no request that we know. */
static __always_inline void redis_release(struct qj_cpu_state *cpu, struct thread_state *thread,
					  bool closes, __u64 now)
{
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
	if (!closes)
		return;
	end_stretch(cpu, now);
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

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
	r->head.block = QJ_BLOCK_TEXT;
	r->head.text_bytes = bytes;
	__builtin_memset(&r->text, 0, sizeof(r->text));
	r->text.shape = shape;
	r->text.statement_bytes = bytes + (request->flags & QJ_QUERY_TRUNCATED ? 1 : 0);
	r->text.text_bytes = bytes;
	r->text.server = thread->server;
	r->text.dialect = QJ_DIALECT_REDIS;
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
	__u64 served = thread->session;

	thread->session = connection->session;
	thread->socket = (__u64)sk;
	emit_session(cpu, thread, event, 0, 0);
	thread->session = served;
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

/*
 * The client has gone, perhaps without a reply; or an io-thread has read, and what it read is
 * executed where nothing tells us.
 */
static __always_inline void redis_unread(struct qj_cpu_state *cpu, struct thread_state *thread,
					 struct redis_connection *connection, int got)
{
	if (got) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		if (connection)
			connection->command.at = REDIS_AT_UNKNOWN;
	} else if (thread && connection && connection->waits && connection->executions) {
		connection->flags |= QJ_QUERY_OPEN;
		redis_answered(cpu, thread, connection, bpf_ktime_get_ns());
	}
}

SEC("?tp_btf/sock_recv_length")
int BPF_PROG(on_redis_recv, struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task);
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr, now;

	if (got < 0 || (flags & MSG_PEEK) || (!thread && !redis_io_thread(task)))
		return 0;
	cpu = this_cpu();
	if (!thread || !got) {
		redis_unread(cpu, thread, bpf_sk_storage_get(&redis_connections, sk, 0, 0), got);
		return 0;
	}
	connection = redis_connect(cpu, thread, sk);
	if (!connection || connection->opaque)
		return 0;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (!addr || !redis_in_step(cpu, thread, connection, sk, addr, got)) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return 0;
	}
	if (connection->opaque)
		return 0;
	if (connection->waits && connection->executions) /* more, before the reply has gone */
		redis_answered(cpu, thread, connection, now);
	if (!connection->waits) {
		redis_request(cpu, connection, now);
		thread->unanswered++;
	}
	redis_claim(cpu, thread, connection, now);
	thread->sleeps = task->nvcsw;
	redis_take(cpu, thread, connection, addr, got);
	cpu->shape = connection->shape;
	thread->shape = connection->shape;
	return 0;
}

/*
 * A reply: its connection's request has been served. The first reply of a turn is written when the
 * last command has been executed, and the stretch stays with that command; the stretches of the
 * following ones belong to whom they answer.
 */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(on_redis_send, struct sock *sk, int sent, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task), *io = 0;
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread)
		io = redis_io_thread(task);
	if ((!thread && !io) || sent <= 0)
		return 0;
	connection = bpf_sk_storage_get(&redis_connections, sk, 0, 0);
	if (!connection || !connection->query)
		return 0;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	if (!thread) {
		/* The main thread waits for it, and has no hand in this connection until then. */
		if (connection->waits)
			redis_answered(cpu, io, connection, now);
		return 0;
	}
	if (!thread->query && is_open(cpu))
		redis_claim(cpu, thread, connection, now);
	if (connection->waits) {
		if (thread->unanswered)
			thread->unanswered--;
		redis_answered(cpu, thread, connection, now);
	}
	redis_release(cpu, thread, thread->unanswered != 0, now);
	return 0;
}
