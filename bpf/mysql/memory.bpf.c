// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reads a server's memory for sessions and statements that are older than the recording, and for
 * the settings that decide what a statement's bytes mean, which packets do not show reliably. The
 * running thread's session object (class THD) is in the thread-local variable current_thd. It
 * points to the prepared statement that a command named last, with its id and its text. So a
 * statement that was prepared earlier is read after its first execution, once, without a further
 * probe.
 *
 * All offsets come from the server's own code (servers/mysql/memory.py). A text is taken only if
 * the statement has the id that the client sent. MySQL: class Prepared_statement_map
 * (sql/sql_class.h), class Prepared_statement (sql/sql_prepare.h). MariaDB: class Statement_map
 * (sql/sql_class.h).
 */
#include "core/task.bpf.h"
#include "sessions.bpf.h"

/* sql_mode: MySQL sql/system_variables.h, MariaDB sql/sql_class.h */
#define MODE_ANSI_QUOTES	  (1ULL << 2)
#define MODE_IGNORE_SPACE	  (1ULL << 3)
#define MODE_NO_BACKSLASH_ESCAPES (1ULL << 20)
#define MODE_HIGH_NOT_PRECEDENCE  (1ULL << 29)
_Static_assert(QJ_SHAPE_QUOTING_PLAIN_NAMES - QJ_SHAPE_QUOTING_PLAIN ==
		   QJ_SHAPE_QUOTING_NAMES - QJ_SHAPE_QUOTING_STRINGS,
	       "each mode adds its own number");

#define CHARSET_NAME_AT	 16
#define FOUR(a, b, c, d) ((__u32)(a) | (b) << 8 | (c) << 16 | (d) << 24)

/* A pointer in the server's memory; 0: null, or unreadable. */
static __always_inline __u64 pointer_at(__u64 addr)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (const void *)addr);
	return value;
}

/* Returns the session object of the running thread; 0: not known. */
static __always_inline __u64 current_thd(const struct thread_state *thread)
{
#if defined(__TARGET_ARCH_x86) /* only x86-64 code is analysed for its place */
	__u64 below = facts_of(thread)[QJ_MYSQL_SESSION];

	if (below)
		return pointer_at(TASK_FIELD(bpf_get_current_task_btf(), thread.fsbase) - below);
#endif
	return 0;
}

/* current_thd(), cached per session: a connection keeps its object until it closes. */
static __always_inline __u64 connection_thd(struct thread_state *thread)
{
	if (thread->mysql.thd_session != thread->session) {
		thread->mysql.thd = current_thd(thread);
		thread->mysql.thd_session = thread->mysql.thd ? thread->session : 0;
	}
	return thread->mysql.thd;
}

/*
 * Classifies a character set by its name, which every version of the struct has after four numbers
 * (CHARSET_INFO, include/m_ctype.h). Safe sets have a byte per character and no letter, blank or
 * control character from 0x80 on, or no byte below 0x80 in a character of several.
 */
static __always_inline __u8 charset_of(__u64 charset)
{
	__u64 name = pointer_at(charset + CHARSET_NAME_AT);
	__u64 eight = 0;
	__u32 begins;

	if (bpf_probe_read_user(&eight, 7, (const void *)name)) /* "latin1" and its NUL */
		return QJ_SHAPE_CHARSET_UNKNOWN;
	begins = eight;
	switch (begins) {
	case FOUR('u', 't', 'f', '8'):
	case FOUR('a', 's', 'c', 'i'):
	case FOUR('b', 'i', 'n', 'a'): /* binary */
	case FOUR('u', 'j', 'i', 's'):
	case FOUR('e', 'u', 'c', 'j'): /* eucjpms */
	case FOUR('e', 'u', 'c', 'k'): /* euckr */
	case FOUR('g', 'b', '2', '3'): /* gb2312 */
		return QJ_SHAPE_CHARSET_SAFE;
	case FOUR('l', 'a', 't', 'i'):
		return (eight >> 32 & 0xffffff) == ('n' | '1' << 8) ? QJ_SHAPE_CHARSET_LATIN1
								    : QJ_SHAPE_CHARSET_EIGHT_BITS;
	case FOUR('k', 'o', 'i', '8'):
		return QJ_SHAPE_CHARSET_CYRILLIC;
	case FOUR('c', 'p', '1', '2'):
		return (eight >> 32 & 0xffff) == ('5' | '1' << 8) ? QJ_SHAPE_CHARSET_CYRILLIC
								  : QJ_SHAPE_CHARSET_EIGHT_BITS;
	case FOUR('s', 'j', 'i', 's'):
	case FOUR('c', 'p', '9', '3'): /* cp932 */
		return QJ_SHAPE_CHARSET_SJIS;
	case FOUR('g', 'b', 'k', 0):
	case FOUR('g', 'b', '1', '8'): /* gb18030 */
		return QJ_SHAPE_CHARSET_GBK;
	case FOUR('b', 'i', 'g', '5'):
		return QJ_SHAPE_CHARSET_BIG5;
	}
	begins &= 0xff;
	return begins >= 'a' && begins <= 'z' ? QJ_SHAPE_CHARSET_EIGHT_BITS
					      : QJ_SHAPE_CHARSET_UNKNOWN;
}

int mysql_find_rules(struct thread_state *thread, __u64 thd)
{
	const volatile __u64 *facts;
	__u64 mode = 0, charset;
	__u32 ansi, plain;

	if (!thread)
		return 0;
	facts = facts_of(thread);
	if (!thd)
		thd = connection_thd(thread);
	if (!thd || !facts[QJ_MYSQL_MODE] ||
	    bpf_probe_read_user(&mode, sizeof(mode), (const void *)(thd + facts[QJ_MYSQL_MODE])))
		return 0;
	charset = pointer_at(thd + facts[QJ_MYSQL_CLIENT_CHARSET]);
	if (charset != thread->mysql.charset_addr) {
		thread->mysql.charset_addr = charset;
		thread->mysql.charset = charset_of(charset);
	}
	ansi = !!(mode & MODE_ANSI_QUOTES);
	plain = !!(mode & MODE_NO_BACKSLASH_ESCAPES);
	return (QJ_SHAPE_QUOTING_STRINGS +
		ansi * (QJ_SHAPE_QUOTING_NAMES - QJ_SHAPE_QUOTING_STRINGS) +
		plain * (QJ_SHAPE_QUOTING_PLAIN - QJ_SHAPE_QUOTING_STRINGS)) *
		   QJ_SHAPE_CHARSETS +
	       thread->mysql.charset +
	       (mode & (MODE_IGNORE_SPACE | MODE_HIGH_NOT_PRECEDENCE) ? 0 : QJ_SHAPE_PLAIN_MODES);
}

/* Returns the statement that the session found last, if it is the one that its client named. */
static __always_inline __u64 found_statement(const struct thread_state *thread)
{
	const volatile __u64 *facts = facts_of(thread);
	__u64 thd = current_thd(thread), statement;

	if (!thd || !facts[QJ_MYSQL_LAST_FOUND])
		return 0;
	statement = pointer_at(thd + facts[QJ_MYSQL_LAST_FOUND]);
	if (!statement ||
	    pointer_at(statement + facts[QJ_MYSQL_STATEMENT_ID]) != thread->mysql.unknown)
		return 0;
	return statement;
}

int mysql_find_text(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	struct mysql_name text = {};
	__u64 statement, tags;

	if (!cpu || !thread)
		return 0;
	statement = found_statement(thread);
	if (!statement)
		return 0;
	bpf_probe_read_user(&text, sizeof(text),
			    (const void *)(statement + facts_of(thread)[QJ_MYSQL_STATEMENT_TEXT]));
	if (!text.text || !text.length || text.length > 0xffffffff)
		return 0;
	/* The tags are those of this execution, not of its statement. */
	tags = thread->tags;
	thread->tags = 0;
	thread->flags &= ~QJ_QUERY_NO_TEXT;
	/* The session may have had other settings when it prepared this. */
	statement_begin(thread, QJ_DIALECT_MYSQL, 0, text.text, text.length);
	statement_feed(cpu, thread, text.text, text.length);
	if (thread->shape)
		prepared_learn(thread, thread->mysql.unknown);
	if (tags)
		thread->tags = tags;
	return 0;
}

/*
 * Attach mode symbol: reports the session with its client's address. A Vio begins with its socket's
 * descriptor (include/violite.h).
 */
static __always_inline void find_client(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 thd)
{
	__u32 at = facts_of(thread)[QJ_MYSQL_VIO];
	__u64 vio = at && thd ? pointer_at(thd + at) : 0;
	__s32 fd = -1;

	if (vio && !bpf_probe_read_user(&fd, sizeof(fd), (const void *)vio))
		thread->socket = socket_of(fd);
	emit_session(cpu, thread, QJ_SESSION_MET, 0, 0);
	thread->socket = 0; /* the thread's next login has another socket */
}

int mysql_find_names(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	const volatile __u64 *facts;
	struct mysql_name database = {};
	__u64 thd, security, user;

	if (!cpu || !thread)
		return 0;
	facts = facts_of(thread);
	thd = current_thd(thread);
	if (thread->attach_mode == QJ_ATTACH_SYMBOL)
		find_client(cpu, thread, thd);
	if (!thd || !facts[QJ_MYSQL_SECURITY])
		return 0;
	security = pointer_at(thd + facts[QJ_MYSQL_SECURITY]);
	user = security ? pointer_at(security + facts[QJ_MYSQL_USER]) : 0;
	if (!user)
		return 0;
	emit_session(cpu, thread, QJ_SESSION_USER, user,
		     string_bytes(thread, user, sizeof(thread->scratch)));
	bpf_probe_read_user(&database, sizeof(database),
			    (const void *)(thd + facts[QJ_MYSQL_DATABASE]));
	if (facts[QJ_MYSQL_DATABASE] && database.text)
		emit_session(cpu, thread, QJ_SESSION_DATABASE, database.text,
			     at_most(database.length, QJ_STARTUP_BYTES));
	return 0;
}
