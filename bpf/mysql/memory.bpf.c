// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements memory.bpf.h. */
#include "memory.bpf.h"

/* A pointer in the server's memory; 0: null, or unreadable. */
static __always_inline __u64 pointer_at(__u64 addr)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (const void *)addr);
	return value;
}

/* The session object of the running thread; 0: not known. */
static __always_inline __u64 current_thd(const struct thread_state *thread)
{
	__u64 below = facts_of(thread)[QJ_MYSQL_SESSION];

#if defined(__TARGET_ARCH_x86)
	if (below)
		return pointer_at(bpf_get_current_task_btf()->thread.fsbase - below);
#endif
	return 0;
}

/* The statement that the session found last, if that is the one that its client named. */
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
	/* Tags of this execution are not those of its statement. */
	tags = thread->tags;
	thread->tags = 0;
	thread->flags &= ~QJ_QUERY_NO_TEXT;
	statement_begin(thread, QJ_DIALECT_MYSQL, QJ_SHAPE_DEFAULT, text.text, text.length);
	statement_feed(cpu, thread, text.text, text.length);
	if (thread->shape)
		prepared_learn(thread, thread->mysql.unknown);
	if (tags)
		thread->tags = tags;
	return 0;
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
