// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * VoltDB: a site thread runs one transaction after the other, and the SQL of each in batches of
 * plan fragments that go through one native function. The function's arguments say which
 * transaction it is for, the object it is called on which procedure.
 *
 * From its first batch on a transaction owns its thread: until another one's first batch, or until
 * the thread sleeps after a batch. If it then comes back, what follows is a second part, of no
 * execution. A transaction of several partitions has a part on the site thread of each.
 */
#include "text.bpf.h"

/* Behind the six arguments in registers (System V AMD64 ABI): a return address, then these. */
struct voltdb_arguments {
	__u64 returns_to;
	__u64 input_dependencies;
	__u64 transaction;
	__u64 sp_handle;
	__u64 last_committed_sp_handle;
	__u64 unique; /* UniqueIdGenerator.java: over time, and over all partitions */
};

/* Procedures of several partitions are initiated by a partition of their own (MpInitiator.java). */
static __always_inline bool is_of_all_partitions(__u64 unique)
{
	return (unique & VOLTDB_PARTITION) == VOLTDB_ALL_PARTITIONS;
}

/*
 * Whether this batch is of the transaction whose batch this thread executed last. Reads of one
 * partition within a millisecond have the same id (SpScheduler.handleIv2InitiateTaskMessage()), but
 * every procedure counts its batches from 0. One that is longer than VOLTDB_BATCH_MAX comes in
 * pieces of that length, under one number (ProcedureRunner.voltExecuteSQL()).
 */
static __always_inline bool goes_on(const struct thread_state *thread, __u64 unique, __u32 batch)
{
	if (thread->voltdb.transaction != unique)
		return false;
	return is_of_all_partitions(unique) || batch > thread->voltdb.batch ||
	       (batch == thread->voltdb.batch && thread->voltdb.fragments == VOLTDB_BATCH_MAX);
}

/* 1 where a transaction is seen for the first time, on whichever thread. */
static __always_inline __u32 executions_of(const struct thread_state *thread, __u64 unique,
					   bool has_begun)
{
	static const __u8 yes = 1;
	struct voltdb_transaction key = {.unique = unique,
					 .tgid = bpf_get_current_pid_tgid() >> 32};

	if (has_begun)
		return 0;
	if (!is_of_all_partitions(unique))
		return 1;
	return !bpf_map_update_elem(&voltdb_begun, &key, &yes, BPF_NOEXIST);
}

static __always_inline struct thread_state *site_thread(void)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	return thread && thread->server_kind == QJ_SERVER_VOLTDB && thread->rung == QJ_RUNG_SYMBOL
		   ? thread
		   : 0;
}

/* nativeExecutePlanFragments(JNIEnv *, jobject engine, jlong, jint batch, jint fragments, ...) */
SEC("?uprobe")
int BPF_KPROBE(voltdb_begin, __u64 env, __u64 engine, __u64 pointer, __u32 batch, __u32 fragments)
{
	struct thread_state *thread = site_thread();
	struct voltdb_arguments arguments;
	struct qj_cpu_state *cpu;
	bool has_begun;
	__u64 now;

	if (!thread)
		return 0;
	cpu = this_cpu();
	if (bpf_probe_read_user(&arguments, sizeof(arguments), (const void *)PT_REGS_SP(ctx))) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return 0;
	}
	now = bpf_ktime_get_ns();
	has_begun = goes_on(thread, arguments.unique, batch);
	thread->voltdb.transaction = arguments.unique;
	thread->voltdb.batch = batch;
	thread->voltdb.fragments = fragments;
	if (has_begun && thread->begin_ns) {
		thread->end_ns = 0;
		claim_slice(cpu, thread, now);
		return 0;
	}
	if (thread->begin_ns)
		query_end(cpu, thread, thread->end_ns ?: now);
	query_begin(cpu, thread, now);
	thread->executions = executions_of(thread, arguments.unique, has_begun);
	thread->command = QJ_COMMAND_QUERY;
	if (!take_text(cpu, thread, engine))
		no_text(cpu, thread);
	label_query(cpu, thread);
	return 0;
}

/*
 * A batch is done, or has failed (ExecutionEngine.checkErrorCode()). Whether it was the last only
 * shows when the thread sleeps, or goes on.
 */
SEC("?uretprobe")
int BPF_KRETPROBE(voltdb_end, int error)
{
	struct thread_state *thread = site_thread();

	if (!thread || !thread->begin_ns)
		return 0;
	if (error)
		thread->flags = (thread->flags & ~QJ_QUERY_OK) | QJ_QUERY_ERROR;
	else if (!(thread->flags & QJ_QUERY_ERROR))
		thread->flags |= QJ_QUERY_OK;
	thread->end_ns = bpf_ktime_get_ns();
	this_cpu()->has_ended = 1;
	return 0;
}
