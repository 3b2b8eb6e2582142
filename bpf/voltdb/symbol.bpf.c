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
#include "core/statement.bpf.h"
#include "hotspot.bpf.h"

/* The text that a VoltDB site thread executes: a procedure's name, or ad hoc SQL. */

#define VOLTDB_NAME_BYTES 256 /* bytes of a procedure's name; longer names are cut */

static __always_inline void no_text(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	count_loss(cpu, QJ_LOSS_TEXT);
	thread->shape = 0;
	thread->flags |= QJ_QUERY_NO_TEXT;
}

/* A string in the engine object that the native function is called on. */
struct voltdb_text {
	__u64 engine; /* JNI handle */
	__u32 field;
	bool list;
	__u8 skipped; /* bytes at its beginning that are not sent */
	struct java_string found;
};

static __always_inline bool find_text(const struct thread_state *thread, struct voltdb_text *text)
{
	return java_find(facts_of(thread), text->engine, text->field, text->list, &text->found);
}

static __always_inline __u64 address_of(const struct thread_state *thread,
					const struct voltdb_text *text)
{
	return java_bytes(facts_of(thread), &text->found) + text->skipped;
}

static __always_inline __u32 bytes_of(const struct voltdb_text *text)
{
	return text->found.bytes - text->skipped;
}

/* Hashes a procedure's name: its length and its bytes, unchanged. */
static __always_inline bool hash_name(struct thread_state *thread, const struct voltdb_text *text)
{
	__u64 addr = address_of(thread, text);
	__u32 bytes = bytes_of(text);
	__u64 key = qj_shape_mix(plan.seed + 0x9e3779b97f4a7c15ULL) | 1;
	__u64 hash = qj_shape_mix(plan.seed ^ key ^ QJ_DIALECT_VOLTDB);
	__u32 left = bytes < VOLTDB_NAME_BYTES ? bytes : VOLTDB_NAME_BYTES;
	__u64 *words = (__u64 *)thread->chunk.bytes;

	hash = qj_shape_step(hash, bytes, key);
	for (int c = 0; c < VOLTDB_NAME_BYTES / QJ_SHAPE_CHUNK; c++) {
		__u64 n = at_most(left, QJ_SHAPE_CHUNK);

		if (!n)
			break;
		__builtin_memset(words, 0, QJ_SHAPE_CHUNK);
		if (bpf_probe_read_user(words, n, (const void *)addr))
			return false;
		for (unsigned w = 0; w < QJ_SHAPE_CHUNK / 8; w++)
			hash = qj_shape_step(hash, words[w], key);
		addr += n;
		left -= n;
	}
	hash = qj_shape_mix(hash);
	thread->shape = hash + 1 < 2 ? 1 : hash;
	thread->statement_bytes = bytes;
	if (bytes > VOLTDB_NAME_BYTES)
		thread->flags |= QJ_QUERY_TRUNCATED;
	return true;
}

/*
 * An ad hoc statement, hashed like other SQL: VoltDB's quotes and comments are those of the
 * standard, as in PostgreSQL. Of a batch of statements the first is sent, marked as truncated.
 */
static __always_inline bool hash_statement(struct thread_state *thread,
					   const struct voltdb_text *text)
{
	struct statement_walk walk = {.thread = thread, .addr = address_of(thread, text)};
	__u32 whole;

	statement_begin(thread, QJ_DIALECT_POSTGRES, QJ_SHAPE_STANDARD, walk.addr,
			text->found.bytes);
	if (text->found.elements > 1)
		thread->flags |= QJ_QUERY_TRUNCATED;
	whole = walk.left = thread->text_left;
	thread->text_left = 0;
	bpf_loop(STATEMENT_CHUNKS, statement_chunk, &walk, 0);
	if (walk.taken != whole)
		return false;
	thread->text.truncated = (thread->flags & QJ_QUERY_TRUNCATED) != 0;
	thread->shape = qj_shape_end(&thread->text);
	return true;
}

/* Sends the text, if its shape is new and the text is still at the same place, and so valid. */
static __always_inline bool settle_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct voltdb_text *text, __u8 dialect, __u32 most)
{
	__u64 bytes = at_most(bytes_of(text) < most ? bytes_of(text) : most, QJ_TEXT_BYTES);
	struct qj_ring_text *r = 0;
	bool still;

	if (!was_seen(thread->shape)) {
		r = reserve(sizeof(*r));
		if (!r) /* the text is sent with a later execution */
			count_loss(cpu, QJ_LOSS_TEXT);
	}
	still = !r || !bpf_probe_read_user(r->bytes, bytes, (const void *)address_of(thread, text));
	still = still &&
		java_still(facts_of(thread), text->engine, text->field, text->list, &text->found);
	if (!r)
		return still;
	if (!still) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return false;
	}
	/* A length above the actual one marks that the text continues. */
	fill_text(r, thread->shape, bytes, bytes + (thread->flags & QJ_QUERY_TRUNCATED ? 1 : 0),
		  thread->server, dialect);
	r->text.rules = thread->text.rules;
	submit(r);
	set_seen(thread->shape);
	return true;
}

/*
 * Ad hoc SQL runs as AdHoc_RO_SP, AdHoc_RW_MP and the like (org/voltdb/sysprocs); a partition that
 * does its part for another runs it as @AdHoc_RW_MP. Returns the length before the common name, or
 * -1. Compares numbers because `bpftool gen object` 7.1 misplaces string constants.
 */
static __always_inline int ad_hoc_prefix(__u64 addr, __u32 bytes)
{
	const __u64 ad_hoc = 0x525f636f486441ULL; /* "AdHoc_R" */
	__u64 name = 0;

	if (bytes <= sizeof(name) || bpf_probe_read_user(&name, sizeof(name), (const void *)addr))
		return -1;
	if (name << 8 == ad_hoc << 8)
		return 0;
	return (name & 0xff) == '@' && name >> 8 == ad_hoc ? 1 : -1;
}

/*
 * The shape of a procedure is its name. The shape of ad hoc SQL is its statement, if the engine has
 * it; a partition that does its part for another does not. Not inline: its frame is free again when
 * the query's slice begins.
 */
static __noinline bool take_text(struct qj_cpu_state *cpu, struct thread_state *thread,
				 __u64 engine)
{
	struct voltdb_text text = {.engine = engine,
				   .field = facts_of(thread)[QJ_VOLTDB_PROCEDURE]};
	__u64 addr;
	int skipped;

	if (!find_text(thread, &text) || !text.found.latin1)
		return false;
	addr = address_of(thread, &text);
	skipped = ad_hoc_prefix(addr, text.found.bytes);
	if (skipped >= 0) {
		struct voltdb_text sql = {.engine = engine,
					  .field = facts_of(thread)[QJ_VOLTDB_STATEMENTS],
					  .list = true};

		if (find_text(thread, &sql) && sql.found.latin1 && hash_statement(thread, &sql))
			return settle_text(cpu, thread, &sql, QJ_DIALECT_POSTGRES, QJ_TEXT_BYTES);
		thread->flags &= ~QJ_QUERY_TRUNCATED;
		text.skipped = skipped;
	}
	return hash_name(thread, &text) &&
	       settle_text(cpu, thread, &text, QJ_DIALECT_VOLTDB, VOLTDB_NAME_BYTES);
}

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
 * True if this batch belongs to the same transaction as this thread's last batch. Reads of one
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
 * A batch is done, or has failed (ExecutionEngine.checkErrorCode()). Only when the thread sleeps or
 * continues is it known if the batch was the last.
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
	reply_sent(this_cpu(), thread, bpf_ktime_get_ns());
	this_cpu()->has_ended = 1;
	return 0;
}
