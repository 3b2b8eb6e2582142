// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The symbol rung for PostgreSQL: pgstat_report_activity(state, text) is called whenever a backend
 * takes up a statement and when it goes idle, PortalRun() when a statement is executed.
 * Also, on every rung: parallel workers, which belong to the query of their leader.
 * PostgreSQL 13-17: src/backend/utils/activity/backend_status.c, src/backend/tcop/pquery.c,
 * src/backend/access/transam/parallel.c, src/backend/storage/lmgr/proc.c.
 */
#include "parallel.bpf.h"
#include "postgres_stream.bpf.h"
#include "statement.bpf.h"

static __always_inline void idle(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	if (!thread->begin_ns)
		return;
	if (!thread->executions && thread->command == QJ_COMMAND_QUERY)
		thread->command = QJ_COMMAND_PREPARE; /* parsed or bound, not run */
	query_end(cpu, thread, now);
	end_stretch(cpu, now);
	thread->query = 0;
	thread->text_addr = 0;
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

static __always_inline void running(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 text, __u64 now)
{
	/* Another statement after an executed one, with no pause: a pipeline, told apart here. */
	if (thread->begin_ns && thread->executions && thread->text_addr != text)
		idle(cpu, thread, now);
	postgres_stream_end(cpu, thread);
	if (text && postgres_streams(text)) {
		postgres_stream_begin(cpu, thread, now);
		return;
	}
	if (!thread->begin_ns) {
		if (!thread->session) {
			thread->session = new_id(cpu);
			emit_session(cpu, thread, QJ_SESSION_MET, 0, 0);
		}
		query_begin(cpu, thread, now);
		thread->command = QJ_COMMAND_QUERY;
	} else if (thread->text_addr == text) {
		return;
	}
	if (text)
		statement_string(cpu, thread, text, QJ_TEXT_BYTES);
	cpu->shape = thread->shape;
}

SEC("?uprobe")
int BPF_KPROBE(on_activity, __u32 state, __u64 text)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	const volatile struct qj_server_plan *server;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || thread->rung != QJ_RUNG_SYMBOL || thread->borrowed)
		return 0;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	server = &plan.servers[(thread->server - 1) & (QJ_MAX_SERVERS - 1)];
	if (state == server->pg_running || state == server->pg_fastpath)
		running(cpu, thread, text, now);
	else if (state == server->pg_idle || state == server->pg_idle_in_transaction ||
		 state == server->pg_aborted)
		idle(cpu, thread, now);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(on_portal_run)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || thread->rung != QJ_RUNG_SYMBOL || !thread->begin_ns)
		return 0;
	if (thread->sets && !thread->executions)
		emit_session(this_cpu(), thread, QJ_SESSION_SETS, thread->text_addr,
			     thread->statement_bytes);
	thread->executions = 1;
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(on_launch_workers)
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

/* BecomeLockGroupMember(PGPROC *leader, int pid), called by a worker as it starts. */
SEC("?uprobe")
int BPF_KPROBE(on_join_leader, __u64 proc, __u32 leader_tgid)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct leader *leader = bpf_map_lookup_elem(&leaders, &leader_tgid);
	struct qj_cpu_state *cpu;

	if (!thread || !leader)
		return 0;
	cpu = this_cpu();
	thread->query = leader->query;
	thread->shape = leader->shape;
	thread->session = leader->session;
	thread->begin_ns = bpf_ktime_get_ns();
	thread->borrowed = 1;
	claim_stretch(cpu, thread, thread->begin_ns);
	return 0;
}
