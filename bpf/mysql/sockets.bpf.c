// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reads of sockets by threads of MySQL and MariaDB: in attach mode `socket` the commands; in attach
 * mode `symbol` they end the query that a probe has begun.
 */
#include "core/socket.bpf.h"
#include "next_read.bpf.h"
#include "wire.bpf.h"

/* Every new client begins with a login; one that was already connected does not. */
static __always_inline void mysql_connected(struct thread_state *thread)
{
	thread->mysql.long_data = 0;
	if (thread->socket || thread->phase != PHASE_UNKNOWN)
		thread->phase = PHASE_STARTUP;
}

/* The thread has read `got` bytes to `addr`. 0 or negative: there was nothing to read. */
static __always_inline void mysql_received(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, int got)
{
	if (got <= 0)
		mysql_wait(cpu, thread, addr, bpf_ktime_get_ns());
	else if (thread->need) /* a packet's body begins and ends nothing: no need for the clock */
		mysql_read(cpu, thread, addr, got, 0);
	else
		mysql_read(cpu, thread, addr, got, bpf_ktime_get_ns());
}

static __always_inline void mysql_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_of(task);
	struct qj_cpu_state *cpu;
	__u64 addr;

	if (!thread || thread->server_kind != QJ_SERVER_MYSQL || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (PLANNED_ON(MYSQL, SYMBOL) && thread->attach_mode == QJ_ATTACH_SYMBOL)
		mysql_next_read(cpu, thread, (__u64)sk, got);
	if (PLANNED_ON(MYSQL, SOCKET) && thread->attach_mode == QJ_ATTACH_SOCKET &&
	    reads_client(cpu, task, thread, sk, got, mysql_connected, &addr))
		mysql_received(cpu, thread, addr, got);
}

READS(mysql, mysql_reads)
