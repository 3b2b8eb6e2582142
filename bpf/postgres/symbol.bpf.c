// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The attach mode `symbol` for PostgreSQL. A backend calls pgstat_report_activity(state, text) when
 * it takes up a statement (also to parse or bind it) and when it becomes idle, PortalRun() when it
 * executes one, and PortalErrorCleanup() when one has failed. Also, on every attach mode: parallel
 * workers, which belong to the query of their leader. PostgreSQL 13-18:
 * src/backend/utils/activity/backend_status.c, src/backend/tcop/pquery.c and postgres.c,
 * src/backend/access/transam/parallel.c, src/backend/storage/lmgr/proc.c.
 */
#include "next_read.bpf.h"
#include "text.bpf.h"

/* Parallel workers identify their leader by its process id. */
struct leaders_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* process id of the leader */
	__type(value, struct leader);
};
struct leaders_map leaders SEC(".maps");

static __always_inline void begun(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 text,
				  __u64 now)
{
	if (!thread->begin_ns) {
		query_begin(cpu, thread, now);
		thread->command = QJ_COMMAND_QUERY;
	}
	if (text)
		postgres_text(cpu, thread, text, QJ_TEXT_BYTES, 0, postgres_rules(thread));
	label_query(cpu, thread);
}

static __always_inline void running(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 text, __u64 now)
{
	if (!thread->session && !postgres_report_session(cpu, thread)) {
		thread->phase = PHASE_OPAQUE;
		return;
	}
	/* A statement right after an executed one: a pipeline, whose queries are separated here. */
	if (thread->postgres.ran && thread->text_addr != text)
		postgres_ended(cpu, thread, now);
	postgres_stream_end(cpu, thread);
	if (text && postgres_streams(text)) {
		postgres_stream_begin(cpu, thread, now);
		return;
	}
	thread->postgres.reported = 1;
	if (!thread->begin_ns || thread->text_addr != text)
		begun(cpu, thread, text, now);
}

SEC("?uprobe")
int BPF_KPROBE(postgres_activity, __u32 state, __u64 text)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	const volatile __u64 *facts;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL || thread->borrowed ||
	    thread->phase == PHASE_OPAQUE)
		return 0;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	facts = facts_of(thread);
	if (state == facts[QJ_POSTGRES_RUNNING] || state == facts[QJ_POSTGRES_FASTPATH])
		running(cpu, thread, text, now);
	else if (state == facts[QJ_POSTGRES_IDLE] ||
		 state == facts[QJ_POSTGRES_IDLE_IN_TRANSACTION] ||
		 state == facts[QJ_POSTGRES_ABORTED])
		postgres_ended(cpu, thread, now);
	return 0;
}

/*
 * True if this is the portal's first run (PortalData's atStart). Later runs fetch more of its rows
 * and are no execution, as in exec_execute_message().
 */
static __always_inline bool is_at_start(const struct thread_state *thread, __u64 portal)
{
	__u32 offset = facts_of(thread)[QJ_POSTGRES_PORTAL_START];
	__u8 at_start = 1;

	if (offset)
		bpf_probe_read_user(&at_start, sizeof(at_start), (const void *)(portal + offset));
	return at_start;
}

/* The next statement of a pipeline, whose text has the last one's address. */
static __always_inline void next_of_pipeline(struct thread_state *thread)
{
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now = bpf_ktime_get_ns(), text = thread->text_addr;

	postgres_ended(cpu, thread, now);
	begun(cpu, thread, text, now);
	thread->executions = 1;
}

static __always_inline bool is_next_of_pipeline(const struct thread_state *thread)
{
	return thread->executions && thread->postgres.reported;
}

/* PortalRun(Portal portal, long count, bool isTopLevel, ...) */
SEC("?uprobe")
int BPF_KPROBE(postgres_portal_run, __u64 portal, __u64 count, __u8 top_level)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL || !thread->begin_ns)
		return 0;
	if (!top_level) /* an EXECUTE statement's inner portal */
		return 0;
	if (!is_at_start(thread, portal)) {
		if (!thread->executions)
			thread->command = QJ_COMMAND_EXECUTE;
	} else if (is_next_of_pipeline(thread)) {
		next_of_pipeline(thread);
	} else {
		thread->executions = 1;
	}
	thread->postgres.reported = 0;
	thread->postgres.ran = 1;
	return 0;
}

/*
 * Called only where a statement has failed: PostgresMain(). A statement that was refused before it
 * ran (syntax error, unknown table, aborted transaction) is a call too. Rows that a later request
 * fetches from a portal are no call.
 */
SEC("?uprobe")
int BPF_KPROBE(postgres_failed)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL || !thread->begin_ns ||
	    thread->borrowed)
		return 0;
	if (is_next_of_pipeline(thread))
		next_of_pipeline(thread);
	else if (!thread->postgres.ran)
		thread->executions = 1;
	thread->flags |= QJ_QUERY_ERROR;
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(postgres_launch_workers)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct leader leader;

	if (!thread || !thread->begin_ns)
		return 0;
	leader = leader_of(thread);
	bpf_map_update_elem(&leaders, &tgid, &leader, BPF_ANY);
	return 0;
}

/* BecomeLockGroupMember(PGPROC *leader, int pid), called by a worker when it starts. */
SEC("?uprobe")
int BPF_KPROBE(postgres_join_leader, __u64 proc, __u32 leader_tgid)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct leader *leader = bpf_map_lookup_elem(&leaders, &leader_tgid);

	if (!thread || !leader)
		return 0;
	leader_join(this_cpu(), thread, leader);
	return 0;
}
