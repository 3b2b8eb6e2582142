/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reads of sockets by servers whose threads serve one connection each, from request to reply, on
 * the attach mode `socket`. A query begins when the thread reads from its socket; finding nothing
 * to read shows that the reply was sent. Sends need no hook.
 */
#ifndef QJOULE_SOCKET_BPF_H
#define QJOULE_SOCKET_BPF_H

#include "query.bpf.h"
#include "syscall.bpf.h"

/*
 * A socket is identified by its cookie, which is never reused. Its address may be: the next
 * client's socket can lie where the last one's was. A cookie is created on first request and reads
 * 0 until then (net/core/sock_diag.c).
 */
static __always_inline __u64 cookie_of(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
}

static __always_inline bool is_known(const struct thread_state *thread, const struct sock *sk)
{
	/* The kernel knows this pointer's type: a plain load is enough. */
	return thread->socket == (__u64)sk &&
	       thread->cookie == (__u64)sk->__sk_common.skc_cookie.counter;
}

/* A closed socket has lost its file (sock_orphan()), or another socket has reused its memory. */
static __always_inline bool has_client(const struct thread_state *thread)
{
	const struct sock *sk = (const struct sock *)thread->socket;

	return sk && cookie_of(sk) == thread->cookie && BPF_CORE_READ(sk, sk_socket);
}

/*
 * While a query runs, a server may read from other sockets (federation, replication): these reads
 * are not requests. Between queries, or after the client's socket is closed, another socket means
 * another client, for which `connected` is called before the thread gets that socket; 0: nothing
 * is.
 */
static __always_inline bool is_clients_socket(struct qj_cpu_state *cpu, struct thread_state *thread,
					      struct sock *sk, int got,
					      void (*connected)(struct thread_state *))
{
	if (is_known(thread, sk))
		return true;
	if (got <= 0)
		return false;
	if (thread->begin_ns && !thread->end_ns && thread->command != QJ_COMMAND_OTHER &&
	    has_client(thread))
		return false;
	query_abandon(cpu, thread, bpf_ktime_get_ns());
	if (connected)
		connected(thread);
	thread->socket = (__u64)sk;
	thread->cookie = bpf_get_socket_cookie(sk);
	session_begin(cpu, thread);
	if (thread->phase != PHASE_STARTUP)
		emit_session(cpu, thread, QJ_SESSION_MET, 0, 0);
	return true;
}

/*
 * Whether a thread of the attach mode `socket` has read `got` bytes of its client's requests, to
 * `addr`. 0 or negative: there was nothing to read.
 */
static __always_inline bool reads_client(struct qj_cpu_state *cpu, struct task_struct *task,
					 struct thread_state *thread, struct sock *sk, int got,
					 void (*connected)(struct thread_state *), __u64 *addr)
{
	if (!is_clients_socket(cpu, thread, sk, got, connected) || thread->phase == PHASE_OPAQUE)
		return false;
	*addr = received_at(task);
	if (got > 0 && !*addr) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return false;
	}
	return true;
}

#endif
