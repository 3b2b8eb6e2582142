// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Probes of the attach mode `symbol` that every query passes once, or only if it fails, beside
 * next_read.bpf.h. PostgreSQL 13-18: src/backend/tcop/pquery.c, src/backend/utils/error/elog.c.
 */
#include "next_read.bpf.h"

/* The part of PortalData that begins with atStart: src/include/utils/portal.h. */
struct portal_state {
	__u8 at_start;
	__u8 reserved[7];
	__u64 position;
	__u64 created; /* when its message came */
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

/* The last query is over if this portal is not of the same message, which is told by its time. */
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

	if (!thread || !top_level) /* what an EXECUTE statement executes */
		return 0;
	portal += facts_of(thread)[QJ_POSTGRES_PORTAL_START];
	bpf_probe_read_user(&state, sizeof(state), (const void *)portal);
	if (!state.at_start) /* later runs fetch more rows: no execution, but maybe another message
			      */
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
 * exec_replication_command(const char *text). Such commands run no portal. Of queries on a
 * replica's connection the portal is seen next.
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
 * is known only here: PortalErrorCleanup() runs when there is no statement any more.
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
