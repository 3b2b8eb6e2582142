// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The symbol rung for MySQL and MariaDB: dispatch_command() is entered with every command's plain
 * text, whatever the transport, and left when its reply has been sent.
 */
#include "mysql_wire.bpf.h"
#include "parallel.bpf.h"

#define MARIADB_WOULD_BLOCK 2 /* enum dispatch_command_return, sql/sql_parse.h */

/* MySQL's union COM_DATA (include/mysql/com_data.h): the parts that we read. */
struct mysql_com_query {
	__u64 text;
	__u32 length;
};

struct mysql_com_execute {
	__u64 statement_id;
};

/* A connection's identity is the address of its THD; it does not leave the kernel as such. */
static __always_inline __u64 session_of(__u64 thd)
{
	return (thd ^ plan.seed) * 0x9e3779b97f4a7c15ULL;
}

static __always_inline bool is_pool(const struct thread_state *thread)
{
	return plan.servers[(thread->server - 1) & (QJ_MAX_SERVERS - 1)].pool;
}

/* A command that was suspended, perhaps on another thread, goes on here. */
static __always_inline bool resume(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	struct suspended_query *was = bpf_map_lookup_elem(&suspended, &thread->session);

	if (!was)
		return false;
	thread->query = was->query;
	thread->begin_ns = was->begin_ns;
	thread->shape = was->shape;
	thread->executions = was->executions;
	thread->flags = was->flags | QJ_QUERY_RESUMED;
	thread->statement_bytes = was->statement_bytes;
	thread->command = was->command;
	bpf_map_delete_elem(&suspended, &thread->session);
	claim_stretch(cpu, thread, now);
	return true;
}

/* Leaves the thread to the server: between commands it works for no query. */
static __always_inline void release(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 now)
{
	end_stretch(cpu, now);
	query_reset(cpu, thread);
	thread->query = 0;
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

static __always_inline void suspend(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 now)
{
	struct suspended_query is = {
	    .query = thread->query,
	    .begin_ns = thread->begin_ns,
	    .shape = thread->shape,
	    .executions = thread->executions,
	    .flags = thread->flags,
	    .statement_bytes = thread->statement_bytes,
	    .command = thread->command,
	};

	bpf_map_update_elem(&suspended, &thread->session, &is, BPF_ANY);
	release(cpu, thread, now);
}

static __always_inline struct thread_state *begin(__u64 thd, struct qj_cpu_state **cpu,
						  bool *resumed)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	__u64 now;

	if (!thread || thread->rung != QJ_RUNG_SYMBOL)
		return 0;
	now = bpf_ktime_get_ns();
	*cpu = this_cpu();
	thread->session = session_of(thd);
	*resumed = is_pool(thread) && resume(*cpu, thread, now);
	if (!*resumed)
		query_begin(*cpu, thread, now);
	return thread;
}

static __always_inline void text_command(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u8 command, __u64 text, __u32 length)
{
	thread->command = command;
	thread->executions = command == QJ_COMMAND_QUERY;
	statement_begin(thread, QJ_DIALECT_MYSQL, text, length);
	statement_feed(cpu, thread, text, length);
	thread->may_continue = 0;
	cpu->shape = thread->shape;
}

/* MariaDB, MySQL 5.6: dispatch_command(command, THD *, char *packet, length, ...). */
SEC("?uprobe")
int BPF_KPROBE(on_command_command_first, __u32 command, __u64 thd, __u64 packet, __u32 length)
{
	struct qj_cpu_state *cpu;
	bool resumed;
	struct thread_state *thread = begin(thd, &cpu, &resumed);
	__u32 id = 0;

	if (!thread || resumed)
		return 0;
	switch (command) {
	case MYSQL_QUERY:
		text_command(cpu, thread, QJ_COMMAND_QUERY, packet, length);
		break;
	case MYSQL_STMT_PREPARE:
		text_command(cpu, thread, QJ_COMMAND_PREPARE, packet, length);
		break;
	case MYSQL_STMT_EXECUTE:
	case MYSQL_STMT_FETCH:
	case MARIADB_BULK_EXECUTE:
		bpf_probe_read_user(&id, sizeof(id), (const void *)packet);
		mysql_execute(thread, command, id);
		cpu->shape = thread->shape;
		break;
	}
	return 0;
}

/* MySQL 5.7 and later: dispatch_command(THD *, const COM_DATA *, command). */
SEC("?uprobe")
int BPF_KPROBE(on_command_thd_first, __u64 thd, __u64 com_data, __u32 command)
{
	struct qj_cpu_state *cpu;
	bool resumed;
	struct thread_state *thread = begin(thd, &cpu, &resumed);
	struct mysql_com_query query = {};
	struct mysql_com_execute execute = {};

	if (!thread || resumed)
		return 0;
	switch (command) {
	case MYSQL_QUERY:
	case MYSQL_STMT_PREPARE:
		bpf_probe_read_user(&query, sizeof(query), (const void *)com_data);
		text_command(cpu, thread,
			     command == MYSQL_QUERY ? QJ_COMMAND_QUERY : QJ_COMMAND_PREPARE,
			     query.text, query.length);
		break;
	case MYSQL_STMT_EXECUTE:
	case MYSQL_STMT_FETCH:
		bpf_probe_read_user(&execute, sizeof(execute), (const void *)com_data);
		mysql_execute(thread, command, execute.statement_id);
		cpu->shape = thread->shape;
		break;
	}
	return 0;
}

SEC("?uretprobe")
int BPF_KRETPROBE(on_command_end, int result)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now;

	if (!thread || thread->rung != QJ_RUNG_SYMBOL || !thread->begin_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (is_pool(thread) && result == MARIADB_WOULD_BLOCK) {
		suspend(cpu, thread, now);
		return 0;
	}
	/* The text was read behind the command byte, at the start of the connection's buffer. */
	if (thread->command == QJ_COMMAND_PREPARE)
		mysql_learn_prepared(cpu, thread, thread->text_addr - 1);
	query_end(cpu, thread, now);
	release(cpu, thread, now);
	return 0;
}
