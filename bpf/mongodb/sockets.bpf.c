// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * MongoDB on the attach mode `socket`. A thread of mongod serves one connection. It reads a
 * request, and after its reply it waits for the next one in a blocking system call. So the request
 * ends when its thread falls asleep there (mongodb_switched()). For servers that read without
 * blocking, it ends at a read that finds nothing.
 *
 * On the attach mode `statistical` (FerretDB, written in Go) threads move between connections. The
 * begin and end of requests are reported, but a thread's work cannot be matched to a request.
 */
#include "reply.bpf.h"
#include "wire.bpf.h"
#include "core/socket.bpf.h"

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
	if (c->message.opcode != QJ_MONGODB_COMPRESSED) /* not a shape shared with other requests */
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
