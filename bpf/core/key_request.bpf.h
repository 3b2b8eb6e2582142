/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests of key-value protocols: commands with a name and a key, many connections per thread.
 *
 * A *turn* is one pass of a thread through its event loop. When a thread reads from a connection,
 * it works for that connection's request from then on. A reply ends the request that it answers.
 * Between a sleep and the next read the thread works for no request.
 *
 * All commands of one read form one request: the socket does not show their separate shares.
 */
#ifndef QJOULE_KEY_REQUEST_BPF_H
#define QJOULE_KEY_REQUEST_BPF_H

#include "query.bpf.h"

enum key_waits {
	KEY_WAITS_NOT = 0,
	KEY_WAITS,	  /* the reply to its last request comes next ... */
	KEY_WAITS_BEHIND, /* ... or comes after replies to earlier requests */
};

/* The last request of a connection: stored with its socket. */
struct key_request {
	__u64 session;
	__u64 query; /* 0 before the first */
	__u64 begin_ns;
	__u64 shape;
	__u64 last_shape; /* of the last command */
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 waits;  /* enum key_waits */
	__u8 runs;   /* runs of equal commands */
	__u8 opaque; /* encrypted: nothing can be read on this socket */
	__u8 reserved;
};

static __always_inline bool key_is_open(const struct qj_cpu_state *cpu)
{
	return cpu->owner_kind == QJ_OWNER_SERVER && !cpu->query;
}

/* Gives the open slice to this request: all of it if no request owns it yet. */
static __always_inline void key_claim(struct qj_cpu_state *cpu, struct thread_state *thread,
				      const struct key_request *request, __u64 now)
{
	check_label(cpu, now);
	if (!key_is_open(cpu) && cpu->query != request->query)
		end_slice(cpu, now);
	thread->query = request->query;
	thread->session = request->session;
	thread->shape = request->shape;
	thread->begin_ns = request->begin_ns;
	cpu->query = request->query;
	label_query(cpu, thread);
	cpu->owner_kind = QJ_OWNER_QUERY;
}

/* From here on the thread works for no known request. `closes`: the open slice ends here. */
static __always_inline void key_release(struct qj_cpu_state *cpu, struct thread_state *thread,
					bool closes, __u64 now)
{
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
	if (!closes)
		return;
	check_label(cpu, now);
	end_slice(cpu, now);
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

/* Sends the record of a request that has its reply, or that the next request follows. */
static __always_inline void key_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					 struct key_request *request, __u64 now)
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
	request->waits = KEY_WAITS_NOT;
	thread->query = query;
	thread->begin_ns = begin_ns;
	thread->shape = shape;
	thread->session = session;
}

/* The client has disconnected, perhaps without a reply. */
static __always_inline void key_left(struct qj_cpu_state *cpu, struct thread_state *thread,
				     struct key_request *request)
{
	if (!request->waits || !request->executions)
		return;
	request->flags |= QJ_QUERY_OPEN;
	key_answered(cpu, thread, request, bpf_ktime_get_ns());
}

/*
 * Bytes were read. They belong to the request that waits for its reply only if that request has no
 * complete command yet; otherwise it ends here. Returns whether a new request begins.
 */
static __always_inline bool key_next_request(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct key_request *request, __u64 now)
{
	bool behind = request->waits && request->executions;

	if (behind)
		key_answered(cpu, thread, request, now);
	if (request->waits)
		return false;
	request->query = new_id(cpu);
	request->begin_ns = now;
	request->shape = 0;
	request->last_shape = 0;
	request->executions = 0;
	request->flags = 0;
	request->statement_bytes = 0;
	request->runs = 0;
	request->waits = behind ? KEY_WAITS_BEHIND : KEY_WAITS;
	return true;
}

/* Reports the connection's session; the thread may still be serving another client's request. */
static __always_inline void key_emit_session(struct qj_cpu_state *cpu, struct thread_state *thread,
					     const struct key_request *request, struct sock *sk,
					     __u32 event)
{
	thread->socket = (__u64)sk;
	emit_session_of(cpu, thread, request->session, event, 0, 0);
}

static __always_inline void key_opaque(struct qj_cpu_state *cpu, struct thread_state *thread,
				       struct key_request *request, struct sock *sk)
{
	request->opaque = 1;
	count_loss(cpu, QJ_LOSS_OPAQUE_SESSION);
	key_emit_session(cpu, thread, request, sk, QJ_SESSION_OPAQUE);
}

/*
 * Whether the `got` bytes just read are the first ones of this connection. TCP counts the bytes
 * received; those that the server has not yet read lie behind copied_seq.
 */
static __always_inline bool key_reads_first(const struct sock *sk, __u32 got)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;
	__u32 unread;

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return false;
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq);
	return BPF_CORE_READ(tcp, bytes_received) == (__u64)got + unread;
}

/*
 * The end of a thread's turn. A thread does not sleep while it executes commands. After a sleep,
 * the request that it last read is either done or blocked until another client wakes it.
 */
static __always_inline void key_forget_if_slept(struct thread_state *thread, struct key_turn *turn,
						struct task_struct *task)
{
	if (turn->sleeps == TASK_FIELD(task, nvcsw))
		return;
	turn->sleeps = TASK_FIELD(task, nvcsw);
	turn->unanswered = 0;
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
}

#endif
