// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reads of sockets by PostgreSQL's backends: in attach mode `socket` its requests; in attach mode
 * `symbol` they end the query that a probe has begun. A backend has one client, which has already
 * logged in if we attached later.
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
	if (unknown && thread->phase == PHASE_READY) /* the login was not seen */
		postgres_report_application(cpu, thread);
}

/* Not inline: its frame would add to the stack of the socket mode's calls. */
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

/*
 * Probes of the attach mode `symbol` that every query passes once, or only if it fails, used with
 * next_read.bpf.h. PostgreSQL 13-18: src/backend/tcop/pquery.c, src/backend/utils/error/elog.c.
 */

/* The part of PortalData that begins with atStart: src/include/utils/portal.h. */
struct portal_state {
	__u8 at_start;
	__u8 reserved[7];
	__u64 position;
	__u64 created; /* when the portal's message came */
};

static __always_inline struct thread_state *served(struct qj_cpu_state *cpu)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL || thread->borrowed ||
	    thread->phase == PHASE_OPAQUE || thread->postgres.dumps)
		return 0;
	return postgres_serves(cpu, thread) ? thread : 0;
}

static __always_inline void begins(struct qj_cpu_state *cpu, struct thread_state *thread,
				   __u64 text)
{
	if (!thread->begin_ns)
		query_begin(cpu, thread, bpf_ktime_get_ns());
	thread->command = QJ_COMMAND_QUERY;
	postgres_text(cpu, thread, text, QJ_TEXT_BYTES, 0, postgres_rules(thread));
	label_begun(cpu, thread);
}

/* Ends the last query if this portal, judged by its time, is of a later message. */
static __always_inline void next_message(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 created)
{
	if (thread->postgres.ran && thread->postgres.created != created)
		postgres_ended(cpu, thread, bpf_ktime_get_ns());
	thread->postgres.created = created;
}

/* PortalRun(Portal portal, long count, bool isTopLevel, ...) */
SEC("?uprobe")
int BPF_KPROBE(postgres_execute, __u64 portal, __u64 count, __u8 top_level)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct thread_state *thread = served(cpu);
	struct portal_state state = {.at_start = 1};
	__u64 text;

	if (!thread || !top_level) /* an EXECUTE statement's inner portal */
		return 0;
	portal += facts_of(thread)[QJ_POSTGRES_PORTAL_START];
	bpf_probe_read_user(&state, sizeof(state), (const void *)portal);
	if (!state.at_start) /* later runs fetch rows: no execution, but maybe another message */
		state.created = bpf_ktime_get_ns();
	next_message(cpu, thread, state.created);
	if (thread->postgres.ran)
		return 0; /* another statement of one message with several */
	text = postgres_statement(thread);
	if (!thread->begin_ns || thread->text_addr != text || !thread->shape)
		begins(cpu, thread, text);
	thread->postgres.ran = 1;
	if (state.at_start)
		thread->executions = 1;
	else
		thread->command = QJ_COMMAND_EXECUTE;
	return 0;
}

/*
 * exec_replication_command(const char *text). Such commands run no portal. Queries on a replica's
 * connection run one next.
 */
SEC("?uprobe")
int BPF_KPROBE(postgres_replication, __u64 text)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct thread_state *thread = served(cpu);

	if (!thread || postgres_streams(text))
		return 0;
	if (thread->postgres.ran || thread->postgres.reported)
		postgres_ended(cpu, thread, bpf_ktime_get_ns());
	begins(cpu, thread, text);
	thread->postgres.reported = 1;
	return 0;
}

/*
 * EmitErrorReport(), for errors, warnings and notices. A statement that is refused before it runs
 * is seen only here: when PortalErrorCleanup() runs, the statement is already gone.
 */
SEC("?uprobe")
int BPF_KPROBE(postgres_report)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct thread_state *thread = served(cpu);
	__u64 text;

	if (!thread)
		return 0;
	text = postgres_statement(thread);
	if (!text || thread->text_addr == text)
		return 0;
	if (thread->postgres.ran)
		postgres_ended(cpu, thread, bpf_ktime_get_ns());
	begins(cpu, thread, text);
	thread->text_addr = text;
	return 0;
}
