// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The attach mode `symbol` for MySQL and MariaDB. dispatch_command() gets every command's plain
 * text, whatever the transport, and returns when its reply was sent. Where the kernel shows reads
 * of sockets, the next one ends the command (next_read.bpf.h), and there is no probe on the return.
 */
#include "core/query.bpf.h"
#include "next_read.bpf.h"
#include "sessions.bpf.h"

/* Commands that a thread pool has suspended: another thread may resume them. */

struct suspended_query {
	__u64 query;
	__u64 begin_ns;
	__u64 shape;
	__u64 reply_addr;
	__u64 tags;
	__u64 cpu_ns;
	__u64 since_ns;
	__u64 wait_ns[QJ_WAITS];
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 command;
	__u8 reserved[3];
};

struct suspended_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* session */
	__type(value, struct suspended_query);
};
struct suspended_map suspended SEC(".maps");

/* Resumes a suspended command, which may have begun on another thread. */
static __always_inline bool resume(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	struct suspended_query *was = bpf_map_lookup_elem(&suspended, &thread->session);

	if (!was)
		return false;
	thread->query = was->query;
	thread->begin_ns = was->begin_ns;
	thread->shape = was->shape;
	thread->mysql.reply_addr = was->reply_addr;
	thread->tags = was->tags;
	thread->cpu_ns = was->cpu_ns;
	thread->executions = was->executions;
	thread->flags = was->flags | QJ_QUERY_RESUMED;
	thread->statement_bytes = was->statement_bytes;
	thread->command = was->command;
	__builtin_memcpy(thread->waits.ns, was->wait_ns, sizeof(was->wait_ns));
	thread->waits.any = 1;
	claim_slice(cpu, thread, now);
	/* The command has waited for a thread of the pool. */
	thread->waits.ns[QJ_WAIT_OTHER] += slice_began(cpu, now) - was->since_ns;
	bpf_map_delete_elem(&suspended, &thread->session);
	return true;
}

static __always_inline void suspend(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 now)
{
	struct suspended_query is;

	check_label(cpu, now);
	end_slice(cpu, now);
	settle_expired(&thread->waits, QJ_WAIT_SLEEP);
	is = (struct suspended_query){
	    .query = thread->query,
	    .begin_ns = thread->begin_ns,
	    .shape = thread->shape,
	    .reply_addr = thread->mysql.reply_addr,
	    .tags = thread->tags,
	    .cpu_ns = thread->cpu_ns,
	    .since_ns = slice_began(cpu, now),
	    .executions = thread->executions,
	    .flags = thread->flags,
	    .statement_bytes = thread->statement_bytes,
	    .command = thread->command,
	};
	__builtin_memcpy(is.wait_ns, thread->waits.ns, sizeof(is.wait_ns));
	bpf_map_update_elem(&suspended, &thread->session, &is, BPF_ANY);
	query_release(cpu, thread, now);
}

#define MARIADB_WOULD_BLOCK 2 /* enum dispatch_command_return, sql/sql_parse.h */

/* MySQL's union COM_DATA (include/mysql/com_data.h): the parts that are read. */
struct mysql_text {
	__u64 address;
	__u32 length;
	__u32 reserved;
};

struct mysql_com_query {
	struct mysql_text text;
	__u64 attributes; /* from 8.0.23 on, like their count: an array of struct PS_PARAM */
	__u64 count;
};

struct mysql_com_execute {
	__u64 statement_id;
	__u64 flags;
	__u64 parameters; /* from 8.0.23 on, like their count: an array of struct PS_PARAM */
	__u64 count;
};

/* Makes the session with this object the thread's session. */
static __always_inline void take_session(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 thd)
{
	__u64 number = mysql_number(thread, thd), session, *known;

	if (mysql_serves(thread, number))
		return;
	known = bpf_map_lookup_elem(&mysql_sessions, &number);
	session = known ? *known : number;
	if (thread->session != session)
		thread->query = 0; /* since its last command the thread may have handled a login */
	thread->session = session;
	thread->mysql.number = number;
	if (known)
		return;
	bpf_map_update_elem(&mysql_sessions, &number, &session, BPF_ANY);
	mysql_find_names(cpu, thread);
}

static __always_inline struct thread_state *begin(__u64 thd, struct qj_cpu_state **cpu,
						  bool *resumed)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	__u64 now;

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL)
		return 0;
	now = bpf_ktime_get_ns();
	*cpu = this_cpu();
	if (mysql_ends_at_read(thread)) {
		if (thread->mysql.dumps)
			mysql_dumped(*cpu, thread);
		if (thread->begin_ns) /* both commands came in one record of TLS */
			mysql_end_unread(*cpu, thread, now);
	}
	take_session(*cpu, thread, thd);
	*resumed = is_pool(thread) && resume(*cpu, thread, now);
	if (!*resumed)
		query_begin(*cpu, thread, now);
	return thread;
}

static __always_inline void text_command(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 thd, __u8 command, __u64 text, __u32 length)
{
	thread->command = command == MYSQL_QUERY ? QJ_COMMAND_QUERY : QJ_COMMAND_PREPARE;
	thread->executions = command == MYSQL_QUERY;
	statement_begin(thread, QJ_DIALECT_MYSQL, mysql_find_rules(thread, thd), text, length);
	statement_feed(cpu, thread, text, length);
	label_query(cpu, thread);
}

/* Nothing more will be read: the thread's remaining work belongs to no query. */
static __always_inline void mysql_disconnects(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u64 now = bpf_ktime_get_ns();

	query_end(cpu, thread, now);
	query_release(cpu, thread, now);
}

/* Commands without a statement's text. `id`: the prepared statement, for commands that name one. */
static __always_inline void other_command(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u32 command, __u32 id)
{
	mysql_ends_transaction(thread, command);
	switch (command) {
	case MYSQL_STMT_EXECUTE:
	case MARIADB_STMT_BULK_EXECUTE:
	case MYSQL_STMT_FETCH:
	case MYSQL_STMT_RESET:
	case MYSQL_STMT_CLOSE:
	case MYSQL_STMT_SEND_LONG_DATA:
		mysql_execute(cpu, thread, command, id);
		break;
	case MYSQL_CHANGE_USER:
		thread->command = QJ_COMMAND_CONNECT;
		break;
	case MYSQL_QUIT:
		if (mysql_ends_at_read(thread))
			mysql_disconnects(cpu, thread);
		else
			thread->mysql.leaves = 1;
		break;
	case MYSQL_BINLOG_DUMP:
	case MYSQL_BINLOG_DUMP_GTID:
		mysql_dump(cpu, thread, bpf_ktime_get_ns());
		break;
	}
}

/* MariaDB, MySQL 5.6: dispatch_command(command, THD *, char *packet, length, ...). */
SEC("?uprobe")
int BPF_KPROBE(mysql_begin_command_first, __u32 command, __u64 thd, __u64 packet, __u32 length)
{
	struct qj_cpu_state *cpu;
	bool resumed;
	struct thread_state *thread = begin(thd, &cpu, &resumed);
	__u32 id = 0;

	if (!thread || resumed)
		return 0;
	thread->mysql.reply_addr = packet - 1;
	if (command == MYSQL_QUERY || command == MYSQL_STMT_PREPARE) {
		text_command(cpu, thread, thd, command, packet, length);
		return 0;
	}
	bpf_probe_read_user(&id, sizeof(id), (const void *)packet);
	other_command(cpu, thread, command, id);
	return 0;
}

/*
 * Returns the connection's buffer, which holds the text after the command byte, or, without query
 * attributes, after their count and the number of their sets. 0 if neither matches.
 */
static __always_inline __u64 buffer_of(__u64 text)
{
	__u8 before[3] = {};

	if (bpf_probe_read_user(before, sizeof(before), (const void *)(text - sizeof(before))))
		return 0;
	if (before[2] == MYSQL_QUERY || before[2] == MYSQL_STMT_PREPARE)
		return text - 1;
	return before[0] == MYSQL_QUERY && !before[1] && before[2] == 1 ? text - sizeof(before) : 0;
}

/*
 * Query attributes precede the text in its packet. Earlier servers leave arbitrary values in the
 * argument's place, so attributes are searched in the packet. Not inline: with COM_DATA on the
 * stack of the program, the query that it ends would have too little left on Linux 6.1.
 */
__noinline int mysql_query_tags(struct qj_cpu_state *cpu, struct thread_state *thread,
				__u64 com_data)
{
	struct mysql_com_query query = {};
	__u64 name = 0, packet;

	if (!cpu || !thread)
		return 0;
	bpf_probe_read_user(&query, sizeof(query), (const void *)com_data);
	if (!query.count || query.count > MYSQL_ATTRIBUTES_MAX)
		return 0;
	bpf_probe_read_user(&name, sizeof(name),
			    (const void *)(query.attributes + MYSQL_PS_PARAM_NAME));
	packet = name - mysql_first_name(query.count);
	if (packet < query.text.address && query.text.address - packet <= TAGS_BYTES)
		mysql_tags(cpu, thread, packet, query.count, query.text.address - packet);
	return 0;
}

/* mysql_query_tags() for an execution. */
__noinline int mysql_execute_tags(struct qj_cpu_state *cpu, struct thread_state *thread,
				  __u64 com_data)
{
	struct mysql_com_execute execute = {};
	__u64 packet;

	if (!cpu || !thread)
		return 0;
	bpf_probe_read_user(&execute, sizeof(execute), (const void *)com_data);
	if (!(execute.flags & MYSQL_COUNT_AVAILABLE))
		return 0;
	packet = mysql_execution_packet(execute.parameters, execute.count, execute.statement_id);
	if (packet)
		mysql_execution_tags(cpu, thread, packet, MYSQL_PACKET_MAX, execute.parameters);
	return 0;
}

/* MySQL 5.7 and later: dispatch_command(THD *, const COM_DATA *, command). */
SEC("?uprobe")
int BPF_KPROBE(mysql_begin_thd_first, __u64 thd, __u64 com_data, __u32 command)
{
	struct qj_cpu_state *cpu;
	bool resumed;
	struct thread_state *thread = begin(thd, &cpu, &resumed);
	struct mysql_text text = {};
	__u64 id = 0;

	if (!thread || resumed)
		return 0;
	if (command == MYSQL_QUERY || command == MYSQL_STMT_PREPARE) {
		if (READS_TAGS && command == MYSQL_QUERY)
			mysql_query_tags(cpu, thread, com_data);
		bpf_probe_read_user(&text, sizeof(text), (const void *)com_data);
		text_command(cpu, thread, thd, command, text.address, text.length);
		thread->mysql.reply_addr = buffer_of(text.address);
		return 0;
	}
	bpf_probe_read_user(&id, sizeof(id), (const void *)com_data);
	other_command(cpu, thread, command, id);
	if (READS_TAGS && command == MYSQL_STMT_EXECUTE)
		mysql_execute_tags(cpu, thread, com_data);
	return 0;
}

/*
 * Takes the outcome from the reply. With compression the command was read after an additional
 * header, but the reply is assembled at the buffer's start, which is searched second.
 */
static __always_inline void take_outcome(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	struct mysql_reply reply = {};

	if (!thread->mysql.reply_addr) {
		if (thread->command == QJ_COMMAND_PREPARE)
			count_loss(cpu, QJ_LOSS_PREPARED);
		return;
	}
	mysql_read_reply(thread->mysql.reply_addr, &reply);
	if (!mysql_is_prepared(&reply) && !mysql_is_error(&reply) && !mysql_is_ok(&reply))
		mysql_read_reply(thread->mysql.reply_addr - MYSQL_HEADER, &reply);
	mysql_answered(cpu, thread, &reply);
}

/*
 * True if the thread goes back to wait for its client's next command. That wait ends the query's
 * work, as on sockets, and waking up belongs to the next query (mysql_client() handles logins). In
 * a thread pool, or once its client leaves, the thread's further work belongs to no query.
 */
static __always_inline bool returns_to_wait(const struct thread_state *thread)
{
	return !is_pool(thread) && !thread->mysql.leaves;
}

SEC("?uretprobe")
int BPF_KRETPROBE(mysql_end, int result)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now;

	if (!thread || thread->attach_mode != QJ_ATTACH_SYMBOL)
		return 0;
	if (thread->mysql.dumps)
		mysql_dumped(cpu, thread);
	if (!thread->begin_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (is_pool(thread) && result == MARIADB_WOULD_BLOCK) {
		suspend(cpu, thread, now);
		return 0;
	}
	take_outcome(cpu, thread);
	mysql_executed(cpu, thread);
	query_end(cpu, thread, now);
	if (!returns_to_wait(thread))
		query_release(cpu, thread, now);
	thread->mysql.leaves = 0;
	return 0;
}
