// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * MongoDB in attach mode `socket`. A thread of mongod serves one connection. It reads a request,
 * and after its reply it waits for the next one in a blocking system call. So the request ends when
 * its thread falls asleep there (mongodb_switched()). For servers that read without blocking, it
 * ends at a read that finds nothing.
 *
 * In attach mode `statistical` (FerretDB, written in Go) threads move between connections. The
 * begin and end of requests are reported, but a thread's work cannot be matched to a request.
 */
#include "state.bpf.h"
#include "reply.bpf.h"
#include "core/socket.bpf.h"

/*
 * The client side of MongoDB's protocol: a header of 16 bytes, then the message's body. mongod
 * reads the header, then the body in pieces of at most 64 KB, into one buffer per message
 * (transport/asio/asio_session_impl.cpp). Other servers read several messages at once.
 */

#define MONGODB_WALK_MAX      (1 << 16) /* steps in one read */
#define MONGODB_TLS_HANDSHAKE 0x16 /* RFC 8446, ContentType; the version's major number follows */
#define MONGODB_TLS_MAJOR     3

struct mongodb_walk {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	struct mongodb_connection *connection;
	struct sock *sk;
	__u64 addr;
	__u32 left;
	__u32 fd;   /* the connection's descriptor */
	__u8 lost;  /* these bytes are not requests */
	__u8 moved; /* bytes of an earlier read may have moved */
};

/*
 * The request that waited on this connection was answered. If threads stay with a connection, the
 * thread's time is the request's; otherwise only its begin and end are known.
 */
static __always_inline void mongodb_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct mongodb_connection *connection, __u64 now)
{
	if (owns_time(thread)) {
		if (thread->begin_ns && thread->session == connection->session)
			query_end(cpu, thread, now);
		return;
	}
	if (!connection->waits)
		return;
	query_reset(cpu, thread);
	thread->begin_ns = connection->begin_ns;
	thread->session = connection->session;
	thread->shape = connection->shape;
	thread->statement_bytes = connection->message_bytes;
	thread->command = QJ_COMMAND_QUERY;
	thread->executions = 1;
	thread->flags = connection->outcome;
	thread->rows = connection->rows;
	query_end(cpu, thread, now);
	thread->query = 0;
	connection->waits = 0;
}

static __always_inline void mongodb_take_request(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	struct thread_state *thread = walk->thread;
	__u64 now = bpf_ktime_get_ns();

	mongodb_answered(walk->cpu, thread, c, now);
	walk->moved = 0;
	c->text_addr = c->next_addr = 0;
	c->shaped = 0;
	c->replied = 0;
	c->outcome = 0;
	c->rows = 0;
	qj_mongodb_reply_begin(&c->reply, c->header[1]);
	c->message_bytes = c->header[0];
	c->begin_ns = now;
	if (!owns_time(thread))
		return;
	query_abandon(walk->cpu, thread, now); /* a query of another connection */
	thread->socket = (__u64)walk->sk;
	thread->session = c->session;
	thread->mongodb.client_fd = walk->fd;
	query_begin(walk->cpu, thread, now);
	thread->command = QJ_COMMAND_QUERY;
	thread->statement_bytes = c->message_bytes;
}

/* All bytes that the shape needs were seen. */
static __always_inline void mongodb_shaped(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	struct thread_state *thread = walk->thread;

	c->shaped = 1;
	if (c->message.opcode == QJ_MONGODB_COMPRESSED)
		unpack_mongodb(&c->message, mongodb_chunk(thread), c->text_addr);
	c->shape = qj_mongodb_end(&c->message);
	mongodb_cursor_join(&c->message, &c->shape);
	thread->shape = c->shape;
	if (c->message.at == QJ_MONGODB_AT_CUT)
		thread->flags |= QJ_QUERY_TRUNCATED;
	if ((c->text_sent != c->shape || c->message.opcode == QJ_MONGODB_COMPRESSED) &&
	    mongodb_emit_text(walk->cpu, thread, &c->message, c->text_addr))
		c->text_sent = c->shape;
	c->shape = thread->shape;
	if (c->message.comment_bytes && owns_time(thread) && thread->session == c->session)
		mongodb_emit_comment(walk->cpu, thread, &c->message, c->text_addr);
	if (!c->greeted) {
		bool greets =
		    qj_mongodb_is_hello(&c->message) && c->text_addr && !c->message.inflated;

		c->greeted = 1;
		thread->session = c->session;
		thread->socket = (__u64)walk->sk;
		emit_session(walk->cpu, thread, greets ? QJ_SESSION_OPEN : QJ_SESSION_MET,
			     c->text_addr, greets ? c->message.body : 0);
	}
	if (owns_time(thread))
		label_query(walk->cpu, thread);
	else
		thread->shape = 0;
}

/* The message is complete: the server starts to work. */
static __always_inline void mongodb_complete(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	struct thread_state *thread = walk->thread;

	c->header_bytes = 0;
	if (!owns_time(thread)) {
		c->waits = 1;
	} else if (thread->begin_ns && thread->session == c->session) {
		thread->executions = 1;
		thread->mongodb.is_whole = 1;
	}
}

/* These bytes begin no message: TLS, a reply to the server itself, or lost framing. */
static __always_inline void mongodb_lost(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	const __u8 *start = (const __u8 *)c->header;
	__u32 request[4] = {c->header[0], c->header[1], 0, c->header[3]};

	walk->lost = 1;
	c->header_bytes = 0;
	if (c->phase == MONGODB_UNKNOWN && start[0] == MONGODB_TLS_HANDSHAKE &&
	    start[1] == MONGODB_TLS_MAJOR) {
		c->phase = MONGODB_IGNORED;
		walk->thread->session = c->session;
		walk->thread->socket = (__u64)walk->sk;
		count_loss(walk->cpu, QJ_LOSS_OPAQUE_SESSION);
		emit_session(walk->cpu, walk->thread, QJ_SESSION_OPAQUE, 0, 0);
		return;
	}
	if (c->phase == MONGODB_UNKNOWN && c->header[2] && qj_mongodb_plausible(request)) {
		c->phase = MONGODB_IGNORED;
		return;
	}
	c->phase = MONGODB_UNKNOWN;
	count_loss(walk->cpu, QJ_LOSS_FRAMING);
}

static __always_inline void mongodb_header(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	__u32 have = c->header_bytes & (QJ_MONGODB_HEADER - 1);
	__u64 take = at_most(walk->left, QJ_MONGODB_HEADER - have);

	take = at_most(take, QJ_MONGODB_HEADER);
	bpf_probe_read_user((__u8 *)c->header + have, take, (const void *)walk->addr);
	walk->addr += take;
	walk->left -= take;
	c->header_bytes = have + take;
	if (c->header_bytes < QJ_MONGODB_HEADER)
		return;
	if (!qj_mongodb_plausible(c->header)) {
		mongodb_lost(walk);
		return;
	}
	c->phase = MONGODB_READY;
	qj_mongodb_begin(&c->message, plan.seed, c->header);
	mongodb_take_request(walk);
}

/* If the bytes at `addr` follow the previous ones, the body's first bytes are still in place. */
static __always_inline void mongodb_place(struct mongodb_walk *walk, __u32 bytes)
{
	struct mongodb_connection *c = walk->connection;

	if (!c->next_addr)
		c->text_addr = walk->addr;
	else if (walk->addr != c->next_addr || walk->moved)
		c->text_addr = 0;
	c->next_addr = walk->addr + bytes;
}

static __always_inline void mongodb_body(struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;
	struct qj_mongodb *m = &c->message;
	__u64 bytes = qj_mongodb_unseen(m);

	if (bytes) {
		bytes = bytes < walk->left ? bytes : walk->left;
		if (!c->shaped)
			mongodb_place(walk, bytes);
		qj_mongodb_pass(m, bytes);
	} else {
		struct mongodb_chunk *chunk = mongodb_chunk(walk->thread);

		bytes = at_most(walk->left, sizeof(chunk->bytes));
		bpf_probe_read_user(chunk->bytes, bytes, (const void *)walk->addr);
		bytes = feed_mongodb(m, chunk, bytes);
		if (!bytes || bytes > walk->left) {
			walk->lost = 1;
			return;
		}
		mongodb_place(walk, bytes);
	}
	walk->addr += bytes;
	walk->left -= bytes;
}

static long mongodb_step(__u32 i, struct mongodb_walk *walk)
{
	struct mongodb_connection *c = walk->connection;

	if (walk->lost || !walk->left)
		return 1;
	if (c->header_bytes < QJ_MONGODB_HEADER)
		mongodb_header(walk);
	else
		mongodb_body(walk);
	if (walk->lost || c->header_bytes < QJ_MONGODB_HEADER)
		return 0;
	if (!c->shaped && (!c->message.left || qj_mongodb_is_seen(&c->message)))
		mongodb_shaped(walk);
	if (!c->message.left)
		mongodb_complete(walk);
	return 0;
}

struct mongodb_connections_map mongodb_connections SEC(".maps");

static __always_inline struct thread_state *mongodb_thread(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);

	if (!thread || thread->server_kind != QJ_SERVER_MONGODB)
		return 0;
	return thread->attach_mode == QJ_ATTACH_SOCKET ||
		       thread->attach_mode == QJ_ATTACH_STATISTICAL
		   ? thread
		   : 0;
}

static __always_inline struct mongodb_connection *mongodb_connection(struct qj_cpu_state *cpu,
								     struct sock *sk, int got)
{
	struct mongodb_connection *c = bpf_sk_storage_get(
	    &mongodb_connections, sk, 0, got > 0 ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);

	if (!c) {
		if (got > 0)
			count_loss(cpu, QJ_LOSS_STATE);
		return 0;
	}
	if (!c->session)
		c->session = new_id(cpu);
	return c->phase == MONGODB_IGNORED ? 0 : c;
}

static __always_inline void mongodb_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = mongodb_thread(task);
	struct mongodb_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr;

	if (!thread || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	connection = mongodb_connection(cpu, sk, got);
	if (!connection)
		return;
	if (got <= 0) {
		if (!connection->header_bytes)
			mongodb_answered(cpu, thread, connection, bpf_ktime_get_ns());
		if (!got && owns_time(thread) && !thread->begin_ns)
			mongodb_exited(cpu, thread);
		return;
	}
	addr = received_at(task);
	if (!addr) {
		connection->phase = MONGODB_UNKNOWN;
		connection->header_bytes = 0;
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}

	struct mongodb_walk walk = {
	    .cpu = cpu,
	    .thread = thread,
	    .connection = connection,
	    .sk = sk,
	    .addr = addr,
	    .left = got,
	    .fd = received_from(task),
	    .moved = !owns_time(thread) && connection->next_addr,
	};
	bpf_loop(MONGODB_WALK_MAX, mongodb_step, &walk, 0);
	if (walk.left) {
		connection->phase = MONGODB_UNKNOWN;
		connection->header_bytes = 0;
	}
}

READS(mongodb, mongodb_reads)

/* The reply to a connection's last request was sent, or enough of it to know the outcome. */
static __always_inline void mongodb_replied(struct thread_state *thread,
					    struct mongodb_connection *c)
{
	__u64 rows = 0;
	__u32 outcome =
	    mongodb_outcome(&c->reply) | mongodb_rows(&c->reply, c->message.command, &rows);

	c->replied = 1;
	if (c->message.opcode != QJ_MONGODB_COMPRESSED) /* else others share the shape */
		mongodb_cursor_learn(&c->reply, c->message.cursor, c->shape);
	if (!owns_time(thread)) {
		c->outcome = outcome;
		c->rows = rows;
	} else if (thread->begin_ns && thread->session == c->session) {
		thread->flags |= outcome;
		thread->rows = rows;
	}
}

/* Data is sent: the reply to the request, in pieces of any size, perhaps after another reply. */
static __always_inline void mongodb_writes(struct sock *sk, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = mongodb_thread(task);
	struct mongodb_connection *c;
	__u64 addr;

	if (!thread || sent <= 0)
		return;
	c = bpf_sk_storage_get(&mongodb_connections, sk, 0, 0);
	if (!c || c->phase != MONGODB_READY || c->replied || !c->shaped)
		return;
	addr = sent_from(task, sent);
	if (!addr)
		c->reply.at = QJ_MONGODB_REPLY_DONE;
	else
		mongodb_reply_take(thread, &c->reply, addr, sent);
	if (c->reply.at == QJ_MONGODB_REPLY_DONE)
		mongodb_replied(thread, c);
}

WRITES(mongodb, mongodb_writes)
