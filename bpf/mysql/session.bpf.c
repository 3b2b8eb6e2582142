// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Sessions in attach mode `symbol`: three functions of MySQL and MariaDB that run when a session
 * begins, or changes its user or its default database. Their arguments are the socket and the
 * names. So TLS and thread pools hide nothing, no field of a THD is read, and queries hit no
 * further probe.
 *
 * - check_connection() (sql/sql_connect.cc) calls vio_keepalive() for every client, in the thread
 *   that then has it log in.
 * - acl_authenticate() (sql/sql_acl.cc, sql/auth/sql_authentication.cc) passes every login and
 *   COM_CHANGE_USER to general_log_print("%s@%s on %s using %s", user, host, ...), even if there is
 *   no log, and before it refuses any.
 * - mysql_change_db() (sql/sql_db.cc) changes the default database for a login, COM_INIT_DB, USE
 *   and a procedure of another database.
 */
#include "core/task.bpf.h"
#include "next_read.bpf.h"
#include "sessions.bpf.h"

struct mysql_sessions_map mysql_sessions SEC(".maps");

#define LOGIN_FORMAT_BYTES 6

static __always_inline struct thread_state *symbol_thread(void)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	return thread && thread->attach_mode == QJ_ATTACH_SYMBOL &&
		       thread->server_kind == QJ_SERVER_MYSQL
		   ? thread
		   : 0;
}

/* COM_CHANGE_USER is being executed: if it is refused, MariaDB's session continues unchanged. */
static __always_inline bool changes_user(const struct thread_state *thread)
{
	return thread->begin_ns && thread->command == QJ_COMMAND_CONNECT;
}

/* Emits an event of a session, which may not be the thread's own in a thread pool. */
static __always_inline void emit_event_of(struct thread_state *thread, __u64 session, __u32 event,
					  __u64 addr, __u32 bytes)
{
	emit_session_of(this_cpu(), thread, session, event, addr, bytes);
}

/* Other lines of the log have other formats. */
static __always_inline bool is_login(__u64 format)
{
	static const char begins[LOGIN_FORMAT_BYTES] = {'%', 's', '@', '%', 's', ' '};
	char found[LOGIN_FORMAT_BYTES] = {};

	bpf_probe_read_user(found, sizeof(found), (const void *)format);
	for (int i = 0; i < LOGIN_FORMAT_BYTES; i++)
		if (found[i] != begins[i])
			return false;
	return true;
}

/* A client that was killed in the middle of a query left it open: no read has ended the query. */
static __always_inline void last_client_left(struct qj_cpu_state *cpu, struct thread_state *thread,
					     __u64 now)
{
	if (mysql_ends_at_read(thread)) {
		query_abandon(cpu, thread, now);
		thread->mysql.client = 0;
	}
	if (!thread->begin_ns)
		query_release(cpu, thread, now);
}

/* vio_keepalive(Vio *, bool). A Vio begins with its socket's descriptor (include/violite.h). */
SEC("?uprobe")
int BPF_KPROBE(mysql_client, __u64 vio)
{
	struct thread_state *thread = symbol_thread();
	__s32 fd = -1;

	if (!thread)
		return 0;
	if (thread->query) /* a thread that had another client before */
		last_client_left(this_cpu(), thread, bpf_ktime_get_ns());
	bpf_probe_read_user(&fd, sizeof(fd), (const void *)vio);
	thread->socket = socket_of(fd);
	return 0;
}

/* The event's text is that of a COM_CHANGE_USER, up to the user. */
static __always_inline void take_login(__u64 thd, __u64 format, __u64 user)
{
	struct thread_state *thread = symbol_thread();
	__u64 session;

	if (!thread || !is_login(format))
		return;
	if (changes_user(thread)) {
		session = mysql_session(thread, thd);
		thread->mysql.changes = 1;
	} else {
		session = mysql_logs_in(this_cpu(), thread, thd);
		if (thread->socket)
			emit_event_of(thread, session, QJ_SESSION_MET, 0, 0);
	}
	thread->socket = 0; /* the thread's next login has another socket */
	emit_event_of(thread, session, QJ_SESSION_USER, user,
		      string_bytes(thread, user, sizeof(thread->scratch)));
}

/* MariaDB, MySQL 5.6: general_log_print(THD *, command, format, ...). */
SEC("?uprobe")
int BPF_KPROBE(mysql_log_thd_first, __u64 thd, __u64 command, __u64 format, __u64 user)
{
	take_login(thd, format, user);
	return 0;
}

/* MySQL 5.7 and later: Query_logger::general_log_print(THD *, command, format, ...). */
SEC("?uprobe")
int BPF_KPROBE(mysql_log_logger_first, __u64 logger, __u64 thd, __u64 command, __u64 format,
	       __u64 user)
{
	take_login(thd, format, user);
	return 0;
}

/* mysql_change_db(THD *, const LEX_CSTRING *, bool force) */
SEC("?uprobe")
int BPF_KPROBE(mysql_database, __u64 thd, __u64 lex_string)
{
	struct thread_state *thread = symbol_thread();
	struct mysql_name name = {};

	if (!thread)
		return 0;
	bpf_probe_read_user(&name, sizeof(name), (const void *)lex_string);
	thread->mysql.changing = mysql_session(thread, thd);
	emit_event_of(thread, thread->mysql.changing, QJ_SESSION_DATABASE, name.text,
		      at_most(name.length, QJ_STARTUP_BYTES));
	return 0;
}

/*
 * Returns true if the database was refused. In COM_CHANGE_USER this refuses the user too; the
 * session's user then depends on the server, so it is set to unknown.
 */
SEC("?uretprobe")
int BPF_KRETPROBE(mysql_database_end, int result)
{
	struct thread_state *thread = symbol_thread();

	if (!thread || !thread->mysql.changing)
		return 0;
	if ((__u8)result && changes_user(thread)) {
		thread->mysql.changes = 0;
		emit_event_of(thread, thread->mysql.changing, QJ_SESSION_USER, 0, 0);
	} else if ((__u8)result) {
		emit_event_of(thread, thread->mysql.changing, QJ_SESSION_KEPT, 0, 0);
	}
	thread->mysql.changing = 0;
	return 0;
}
