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
#include "statement.bpf.h"
#include "hotspot.bpf.h"
#include "voltdb.bpf.h"

/* Behind the six arguments in registers (System V AMD64 ABI): a return address, then these. */
struct voltdb_arguments {
	__u64 returns_to;
	__u64 input_dependencies;
	__u64 transaction;
	__u64 sp_handle;
	__u64 last_committed_sp_handle;
	__u64 unique; /* UniqueIdGenerator.java: over time, and over all partitions */
};

static __always_inline const volatile struct qj_hotspot *jvm_of(const struct thread_state *thread)
{
	return &plan.servers[(thread->server - 1) & (QJ_MAX_SERVERS - 1)].hotspot;
}

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
	if (thread->transaction != unique)
		return false;
	return is_of_all_partitions(unique) || batch > thread->batch ||
	       (batch == thread->batch && thread->fragments == VOLTDB_BATCH_MAX);
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

static __always_inline void no_text(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	count_loss(cpu, QJ_LOSS_TEXT);
	thread->shape = 0;
	thread->flags |= QJ_QUERY_NO_TEXT;
}

/* A string of the engine object that the native function is called on. */
struct voltdb_text {
	__u64 engine; /* JNI handle */
	__u32 field;
	bool list;
	__u8 skipped; /* bytes at its beginning that are not told */
	struct java_string found;
};

static __always_inline bool find_text(const struct thread_state *thread, struct voltdb_text *text)
{
	return java_find(jvm_of(thread), text->engine, text->field, text->list, &text->found);
}

static __always_inline __u64 address_of(const struct thread_state *thread,
					const struct voltdb_text *text)
{
	return java_bytes(jvm_of(thread), &text->found) + text->skipped;
}

static __always_inline __u32 bytes_of(const struct voltdb_text *text)
{
	return text->found.bytes - text->skipped;
}

/* A procedure's name: its bytes as they are, and how many there are. */
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
 * An ad hoc statement, hashed as other SQL is: VoltDB's quotes and comments are the standard's, as
 * PostgreSQL's are. Of a batch of statements the first is told, as one that goes on.
 */
static __always_inline bool hash_statement(struct thread_state *thread,
					   const struct voltdb_text *text)
{
	struct statement_walk walk = {.thread = thread, .addr = address_of(thread, text)};
	__u32 whole;

	statement_begin(thread, QJ_DIALECT_POSTGRES, walk.addr, text->found.bytes);
	thread->may_continue = 0;
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

/* The text is right if it still lies where it was found: tells it then, if its shape is new. */
static __always_inline bool settle_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct voltdb_text *text, __u8 dialect, __u32 most)
{
	__u64 bytes = at_most(bytes_of(text) < most ? bytes_of(text) : most, QJ_TEXT_BYTES);
	struct qj_ring_text *r = 0;
	static const __u8 yes = 1;
	bool still;

	if (!bpf_map_lookup_elem(&seen, &thread->shape)) {
		r = reserve(sizeof(*r));
		if (!r) /* it is told with a later execution */
			count_loss(cpu, QJ_LOSS_TEXT);
	}
	still = !r || !bpf_probe_read_user(r->bytes, bytes, (const void *)address_of(thread, text));
	still = still &&
		java_still(jvm_of(thread), text->engine, text->field, text->list, &text->found);
	if (!r)
		return still;
	if (!still) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return false;
	}
	r->head.block = QJ_BLOCK_TEXT;
	r->head.text_bytes = bytes;
	__builtin_memset(&r->text, 0, sizeof(r->text));
	r->text.shape = thread->shape;
	/* More than there is of it: it goes on. */
	r->text.statement_bytes = bytes + (thread->flags & QJ_QUERY_TRUNCATED ? 1 : 0);
	r->text.text_bytes = bytes;
	r->text.server = thread->server;
	r->text.dialect = dialect;
	submit(r);
	bpf_map_update_elem(&seen, &thread->shape, &yes, BPF_ANY);
	return true;
}

/*
 * Ad hoc SQL runs as AdHoc_RO_SP, AdHoc_RW_MP and the like (org/voltdb/sysprocs), on a partition
 * that does its part for another as @AdHoc_RW_MP. Returns how many bytes stand before the name that
 * both have, or -1. Compared as numbers: `bpftool gen object` 7.1 misplaces string constants.
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
 * The shape of a procedure is its name, that of ad hoc SQL its statement, where the engine has the
 * statement: a partition that does its part for another has not.
 */
static __always_inline bool take_text(struct qj_cpu_state *cpu, struct thread_state *thread,
				      __u64 engine)
{
	struct voltdb_text text = {.engine = engine, .field = jvm_of(thread)->procedure};
	__u64 addr;
	int skipped;

	if (!find_text(thread, &text) || !text.found.latin1)
		return false;
	addr = address_of(thread, &text);
	skipped = ad_hoc_prefix(addr, text.found.bytes);
	if (skipped >= 0) {
		struct voltdb_text sql = {
		    .engine = engine, .field = jvm_of(thread)->statements, .list = true};

		if (find_text(thread, &sql) && sql.found.latin1 && hash_statement(thread, &sql))
			return settle_text(cpu, thread, &sql, QJ_DIALECT_POSTGRES, QJ_TEXT_BYTES);
		thread->flags &= ~QJ_QUERY_TRUNCATED;
		text.skipped = skipped;
	}
	return hash_name(thread, &text) &&
	       settle_text(cpu, thread, &text, QJ_DIALECT_VOLTDB, VOLTDB_NAME_BYTES);
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
int BPF_KPROBE(on_fragments, __u64 env, __u64 engine, __u64 pointer, __u32 batch, __u32 fragments)
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
	thread->transaction = arguments.unique;
	thread->batch = batch;
	thread->fragments = fragments;
	if (has_begun && thread->begin_ns) {
		thread->end_ns = 0;
		claim_stretch(cpu, thread, now);
		return 0;
	}
	if (thread->begin_ns)
		query_end(cpu, thread, thread->end_ns ?: now);
	query_begin(cpu, thread, now);
	thread->executions = executions_of(thread, arguments.unique, has_begun);
	thread->command = QJ_COMMAND_QUERY;
	if (!take_text(cpu, thread, engine))
		no_text(cpu, thread);
	cpu->shape = thread->shape;
	return 0;
}

/* A batch is done. Whether it was the last only shows when the thread sleeps, or goes on. */
SEC("?uretprobe")
int BPF_KRETPROBE(on_fragments_end)
{
	struct thread_state *thread = site_thread();

	if (!thread || !thread->begin_ns)
		return 0;
	thread->end_ns = bpf_ktime_get_ns();
	this_cpu()->has_ended = 1;
	return 0;
}
