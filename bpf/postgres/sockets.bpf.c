// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reads of sockets by PostgreSQL's backends: its requests on the attach mode `socket`; on the
 * attach mode `symbol` they end what a probe has begun. A backend has one client: if we attached
 * later, that client has already logged in.
 */
#include "core/socket.bpf.h"
#include "next_read.bpf.h"
#include "wire.bpf.h"

/*
 * Finds a backend's reply buffer: PqSendBuffer, a variable at a known distance from the start of
 * its data. The backend sets it before it first reads.
 */
static __always_inline void postgres_find_replies(struct thread_state *thread)
{
	if (!thread->postgres.send_buffer)
		postgres_variable(&thread->postgres.send_buffer,
				  sizeof(thread->postgres.send_buffer),
				  facts_of(thread)[QJ_POSTGRES_SEND_BUFFER]);
}

/* The backend has read `got` bytes to `addr`. 0 or negative: there was nothing to read. */
static __always_inline void postgres_received(struct qj_cpu_state *cpu, struct thread_state *thread,
					      __u64 addr, int got)
{
	__u64 now = bpf_ktime_get_ns();
	bool unknown = thread->phase == PHASE_UNKNOWN;

	postgres_find_replies(thread);
	if (got <= 0) {
		postgres_wait(cpu, thread, now);
		return;
	}
	postgres_read(cpu, thread, addr, got, now);
	if (unknown && thread->phase == PHASE_READY) /* its login was not seen */
		postgres_named(cpu, thread);
}

/* Not inlined: its frame would count below what the socket mode calls. */
static __noinline int next_read(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 sk,
				int got)
{
	postgres_next_read(cpu, thread, sk, got);
	return 0;
}

static __always_inline void postgres_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_of(task);
	struct qj_cpu_state *cpu;
	__u64 addr;

	if (!thread || thread->server_kind != QJ_SERVER_POSTGRES || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (PLANNED_ON(POSTGRES, SYMBOL) && thread->attach_mode == QJ_ATTACH_SYMBOL)
		next_read(cpu, thread, (__u64)sk, got);
	if (PLANNED_ON(POSTGRES, SOCKET) && thread->attach_mode == QJ_ATTACH_SOCKET &&
	    reads_client(cpu, task, thread, sk, got, 0, &addr))
		postgres_received(cpu, thread, addr, got);
}

READS(postgres, postgres_reads)
