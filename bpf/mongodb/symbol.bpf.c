// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The attach mode `symbol` for MongoDB. handleRequest() gets every request's plain message,
 * whatever the transport, and returns the reply, which its thread then sends.
 *
 * The server also sends requests to itself (DBDirectClient). Within a client's request they are
 * part of it; on threads of their own they are background.
 */
#include "reply.bpf.h"

#define MONGODB_WALK_MAX (QJ_MONGODB_BODY + 64) /* each step takes at least one byte */

/*
 * Message has one member, SharedBuffer, which is a pointer to a Holder. The bytes follow the Holder
 * (util/shared_buffer.h, rpc/message.h), which has a count, and since 3.5 the capacity.
 */
#define MONGODB_HOLDER_BYTES 8

struct mongodb_read {
	struct thread_state *thread;
	struct qj_mongodb message;
	__u64 addr;
};

/* Threads that serve clients are named conn1, conn2, … (transport/service_executor_utils.cpp). */
static __always_inline bool serves_client(const struct task_struct *task)
{
	char comm[4] = {};

	bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
	return comm[0] == 'c' && comm[1] == 'o' && comm[2] == 'n' && comm[3] == 'n';
}

static __always_inline struct thread_state *mongodb_client_thread(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_of(task);

	if (!thread || thread->server_kind != QJ_SERVER_MONGODB ||
	    thread->attach_mode != QJ_ATTACH_SYMBOL || !serves_client(task))
		return 0;
	return thread;
}

static long mongodb_look(__u32 i, struct mongodb_read *read)
{
	struct qj_mongodb *m = &read->message;
	__u64 bytes;

	if (!m->left)
		return 1;
	bytes = qj_mongodb_unseen(m);
	if (bytes) {
		qj_mongodb_pass(m, bytes);
	} else {
		struct mongodb_chunk *chunk = mongodb_chunk(read->thread);

		bytes = at_most(m->left, sizeof(chunk->bytes));
		if (bpf_probe_read_user(chunk->bytes, bytes, (const void *)read->addr))
			return 1;
		bytes = feed_mongodb(m, chunk, bytes);
		if (!bytes)
			return 1;
	}
	read->addr += bytes;
	return 0;
}

/* Hashes the shape of the request's plain message. */
static __always_inline void mongodb_message(struct qj_cpu_state *cpu, struct thread_state *thread,
					    __u64 message)
{
	struct mongodb_read read = {.thread = thread};
	__u32 header[4] = {};
	__u64 holder = 0;

	bpf_probe_read_user(&holder, sizeof(holder), (const void *)message);
	read.addr = holder + MONGODB_HOLDER_BYTES;
	bpf_probe_read_user(header, sizeof(header), (const void *)read.addr);
	thread->mongodb.request = header[1];
	thread->mongodb.cursor = 0;
	thread->mongodb.asked = 0;
	header[2] = 0; /* a continued request (exhaust) has the id of its last reply here */
	if (!holder || !qj_mongodb_plausible(header)) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->flags |= QJ_QUERY_NO_TEXT;
		return;
	}
	read.addr += QJ_MONGODB_HEADER;
	thread->text_addr = read.addr;
	thread->statement_bytes = header[0];
	qj_mongodb_begin(&read.message, plan.seed, header);
	bpf_loop(MONGODB_WALK_MAX, mongodb_look, &read, 0);
	if (read.message.left) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->flags |= QJ_QUERY_NO_TEXT;
		return;
	}
	thread->shape = qj_mongodb_end(&read.message);
	thread->mongodb.cursor = read.message.cursor;
	thread->mongodb.asked = read.message.command;
	mongodb_cursor_join(&read.message, &thread->shape);
	if (read.message.at == QJ_MONGODB_AT_CUT)
		thread->flags |= QJ_QUERY_TRUNCATED;
	mongodb_emit_text(cpu, thread, &read.message, thread->text_addr);
	if (read.message.comment_bytes)
		mongodb_emit_comment(cpu, thread, &read.message, thread->text_addr);
	label_query(cpu, thread);
	if (thread->phase != PHASE_READY) {
		bool greets = qj_mongodb_is_hello(&read.message);

		thread->phase = PHASE_READY;
		emit_session(cpu, thread, greets ? QJ_SESSION_OPEN : QJ_SESSION_MET,
			     thread->text_addr, greets ? read.message.body : 0);
	}
}

/*
 * DbResponse or Future<DbResponse> handleRequest(OperationContext *, const Message &). Its result
 * has a destructor, so the result's address is passed as the first argument (Itanium C++ ABI,
 * "Return Values").
 */
SEC("?uprobe")
int BPF_KPROBE(mongodb_request, __u64 result, __u64 self, __u64 operation, __u64 message)
{
	struct thread_state *thread = mongodb_client_thread();
	struct qj_cpu_state *cpu = this_cpu();

	if (!thread)
		return 0;
	if (thread->begin_ns) {
		thread->mongodb.nested++;
		return 0;
	}
	if (!thread->session) /* a thread serves one connection */
		thread->session = new_id(cpu);
	query_begin(cpu, thread, bpf_ktime_get_ns());
	thread->command = QJ_COMMAND_QUERY;
	thread->executions = 1;
	mongodb_message(cpu, thread, message);
	return 0;
}

/*
 * The returned object. DbResponse begins with its Message; a Future that is ready begins with a
 * flag, then the DbResponse. Both places are tried, and one is accepted only if it holds the reply
 * to this very request.
 */
static __always_inline void mongodb_response(struct thread_state *thread, __u64 result)
{
	struct qj_mongodb_reply reply = {};
	__u64 holders[2] = {}, addr;
	__u32 header[4];

	bpf_probe_read_user(holders, sizeof(holders), (const void *)result);
	for (int i = 0; i < 2; i++) {
		addr = holders[i] + MONGODB_HOLDER_BYTES;
		if (bpf_probe_read_user(header, sizeof(header), (const void *)addr) ||
		    header[2] != thread->mongodb.request || header[3] != QJ_MONGODB_MSG)
			continue;
		qj_mongodb_reply_begin(&reply, thread->mongodb.request);
		mongodb_reply_take(thread, &reply, addr, at_most(header[0], QJ_MONGODB_MAX));
		thread->flags |= mongodb_outcome(&reply);
		thread->flags |= mongodb_rows(&reply, thread->mongodb.asked, &thread->rows);
		mongodb_cursor_learn(&reply, thread->mongodb.cursor, thread->shape);
		return;
	}
}

/* The thread then sends the reply: that is the request's work too. */
SEC("?uretprobe")
int BPF_KRETPROBE(mongodb_done, __u64 result)
{
	struct thread_state *thread = mongodb_client_thread();

	if (!thread || !thread->begin_ns)
		return 0;
	if (thread->mongodb.nested) {
		thread->mongodb.nested--;
		return 0;
	}
	mongodb_response(thread, result);
	query_end(this_cpu(), thread, bpf_ktime_get_ns());
	return 0;
}
