// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The socket rung: a thread serves one connection from request to reply, so what it reads from its
 * socket tells where a query begins, and finding nothing to read tells that the reply has gone.
 * No hook on sends is needed. Tracepoint sock_recv_length: Linux 6.3 (commit 6e6eda44b939).
 */
#include "mysql_wire.bpf.h"
#include "postgres_wire.bpf.h"
#include "syscall.bpf.h"

/* Reads the servers make of other sockets while a query runs (federation, replication) are not
 * requests. Between queries, another socket is another client. */
static __always_inline bool is_clients_socket(struct qj_cpu_state *cpu, struct thread_state *thread,
					      struct sock *sk, int got)
{
	if (thread->socket == (__u64)sk)
		return true;
	if (thread->begin_ns && !thread->end_ns && thread->command != QJ_COMMAND_OTHER)
		return false;
	if (got <= 0)
		return false;
	if (thread->begin_ns)
		query_end(cpu, thread, thread->end_ns ?: bpf_ktime_get_ns());
	/* A PostgreSQL backend has one client: if we came in the middle, it has logged in already. */
	if (thread->server_kind == QJ_SERVER_MYSQL)
		thread->phase = PHASE_STARTUP;
	thread->socket = (__u64)sk;
	session_begin(cpu, thread);
	return true;
}

SEC("?tp_btf/sock_recv_length")
int BPF_PROG(on_recv, struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_of(task);
	struct qj_cpu_state *cpu;
	__u64 addr, now;

	if (!thread || thread->rung != QJ_RUNG_SOCKET || (flags & MSG_PEEK))
		return 0;
	cpu = this_cpu();
	if (!is_clients_socket(cpu, thread, sk, got) || thread->phase == PHASE_OPAQUE)
		return 0;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (got > 0 && !addr) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return 0;
	}
	if (thread->server_kind == QJ_SERVER_MYSQL) {
		if (got > 0)
			mysql_received(cpu, thread, addr, got, now);
		else
			mysql_wait(cpu, thread, addr, now);
	} else {
		if (got > 0)
			postgres_received(cpu, thread, addr, got, now);
		else
			postgres_wait(cpu, thread, now);
	}
	return 0;
}
