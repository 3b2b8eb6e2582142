/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a server's own memory says of sessions and statements that are older than the recording, and
 * of the settings that decide what a statement's bytes mean, which no packet tells for sure. The
 * running thread's session object (class THD) is in the thread-local variable current_thd. It
 * points to the prepared statement that a command named last, which has its id and its text. So a
 * statement that was prepared before is read after its first execution, once, and no further probe
 * is needed.
 *
 * All offsets come from the server's own code (servers/mysql/memory.py). A text is taken only if
 * the statement has the id that the client sent. MySQL: class Prepared_statement_map
 * (sql/sql_class.h), class Prepared_statement (sql/sql_prepare.h). MariaDB: class Statement_map
 * (sql/sql_class.h).
 */
#ifndef QJOULE_MYSQL_MEMORY_BPF_H
#define QJOULE_MYSQL_MEMORY_BPF_H

#include "core/statement.bpf.h"

/* LEX_CSTRING: include/m_string.h, include/mysql/mysql_lex_string.h */
struct mysql_name {
	__u64 text;
	__u64 length;
};

/* In memory.bpf.c, so that the verifier checks each once. Two return 0. */
extern int mysql_find_text(struct qj_cpu_state *cpu, struct thread_state *thread);
/* The rules that the session's next statement is read by (shape_hash.h). `thd`: 0 for the running
 * thread's. */
extern int mysql_find_rules(struct thread_state *thread, __u64 thd);
/*
 * Reports user and database of the thread's session, whose login was not seen, and on the rung
 * `symbol` its client's address.
 */
extern int mysql_find_names(struct qj_cpu_state *cpu, struct thread_state *thread);

/* A command is over: its prepared statement gets its text now if it was unknown until here. */
static __always_inline void mysql_executed(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (!thread->mysql.unknown || thread->shape)
		return;
	mysql_find_text(cpu, thread);
	if (!thread->shape && thread->executions)
		statement_unseen(cpu, thread, thread->session, thread->mysql.unknown);
	label_query(cpu, thread);
}

#endif
