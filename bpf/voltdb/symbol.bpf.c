// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * VoltDB: a site thread runs one transaction after the other. The SQL of each passes in batches of
 * plan fragments through one native function. The function's arguments identify the transaction,
 * and the object it is called on identifies the procedure.
 *
 * A transaction owns its thread from its first batch until another transaction's first batch, or
 * until the thread sleeps after a batch. If the transaction then continues, that is a second part
 * without an execution. A transaction of several partitions has a part on each partition's site
 * thread.
 */
#include "text.bpf.h"

#define VOLTDB_BATCH_MAX      200 /* statements in a batch: ProcedureRunner.java, MAX_BATCH_SIZE */
#define VOLTDB_PARTITION      0x3fffULL /* TxnEgo.java, UniqueIdGenerator.java: lowest 14 bits */
#define VOLTDB_ALL_PARTITIONS 0x3fffULL /* MpInitiator.MP_INIT_PID */

struct voltdb_transaction {
	__u64 unique;
	__u32 tgid;
	__u32 reserved;
};

/* Transactions of several partitions that were already counted. */
struct voltdb_begun_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct voltdb_transaction);
	__type(value, __u8);
};
struct voltdb_begun_map voltdb_begun SEC(".maps");

/* After the six arguments in registers (System V AMD64 ABI): a return address, then these. */
struct voltdb_arguments {
	__u64 returns_to;
	__u64 input_dependencies;
	__u64 transaction;
	__u64 sp_handle;
	__u64 last_committed_sp_handle;
	__u64 unique; /* UniqueIdGenerator.java: unique over time, and over all partitions */
};

/* Procedures of several partitions are initiated by a special partition (MpInitiator.java). */
static __always_inline bool is_of_all_partitions(__u64 unique)
{
	return (unique & VOLTDB_PARTITION) == VOLTDB_ALL_PARTITIONS;
}

/*
 * Whether this batch belongs to the same transaction as this thread's last batch. Reads of one
 * partition within a millisecond have the same id (SpScheduler.handleIv2InitiateTaskMessage()), but
 * every procedure counts its batches from 0. A batch longer than VOLTDB_BATCH_MAX comes in pieces
 * of that length with the same number (ProcedureRunner.voltExecuteSQL()).
 */
static __always_inline bool goes_on(const struct thread_state *thread, __u64 unique, __u32 batch)
{
	if (thread->voltdb.transaction != unique)
		return false;
	return is_of_all_partitions(unique) || batch > thread->voltdb.batch ||
	       (batch == thread->voltdb.batch && thread->voltdb.fragments == VOLTDB_BATCH_MAX);
}

/* 1 when a transaction is seen for the first time, on any thread. */
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

	return thread && thread->server_kind == QJ_SERVER_VOLTDB &&
		       thread->attach_mode == QJ_ATTACH_SYMBOL
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
 * A batch is done, or has failed (ExecutionEngine.checkErrorCode()). Whether it was the last shows
 * only when the thread sleeps or continues.
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
	reply_sent(thread, bpf_ktime_get_ns());
	this_cpu()->has_ended = 1;
	return 0;
}
