/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Sessions in attach mode `symbol`, where functions get a session's object (class THD). A server
 * reuses the object of an ended connection, so each login begins a new session, with the login's
 * id. A session that was already open is identified by its object, and its names come from the
 * server's memory.
 */
#ifndef QJOULE_MYSQL_SESSIONS_BPF_H
#define QJOULE_MYSQL_SESSIONS_BPF_H

#include "core/statement.bpf.h"

#define MYSQL_ADDRESS_BITS 48

struct mysql_sessions_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);   /* see mysql_number() */
	__type(value, __u64); /* the object's session, whose names are known */
};
extern struct mysql_sessions_map mysql_sessions SEC(".maps");

static __always_inline bool is_pool(const struct thread_state *thread)
{
	return facts_of(thread)[QJ_MYSQL_POOL];
}

/* Returns the number of a session object, distinct from those of other servers. */
static __always_inline __u64 mysql_number(const struct thread_state *thread, __u64 thd)
{
	return session_of(thd ^ (__u64)thread->server << MYSQL_ADDRESS_BITS);
}

/* True if the thread served this object last. In a pool another thread may have ended it since. */
static __always_inline bool mysql_serves(const struct thread_state *thread, __u64 number)
{
	return thread->mysql.number == number && !is_pool(thread);
}

/* The session of an object. */
static __always_inline __u64 mysql_session(const struct thread_state *thread, __u64 thd)
{
	__u64 number = mysql_number(thread, thd), *known;

	if (mysql_serves(thread, number))
		return thread->session;
	known = bpf_map_lookup_elem(&mysql_sessions, &number);
	return known ? *known : number;
}

/* A client logs in: another client may have had the object before. */
static __always_inline __u64 mysql_logs_in(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 thd)
{
	__u64 number = mysql_number(thread, thd), session = new_id(cpu);

	bpf_map_update_elem(&mysql_sessions, &number, &session, BPF_ANY);
	thread->mysql.number = 0;
	return session;
}

/* ---- memory.bpf.c: sessions and statements in a server's own memory ---- */

/* LEX_CSTRING: include/m_string.h, include/mysql/mysql_lex_string.h */
struct mysql_name {
	__u64 text;
	__u64 length;
};

/* Separate functions, so that the verifier checks each once. Two return 0. */
extern int mysql_find_text(struct qj_cpu_state *cpu, struct thread_state *thread);
/* Finds the session's rules (shape_hash.h). `thd`: 0 for the running thread's. */
extern int mysql_find_rules(struct thread_state *thread, __u64 thd);
/*
 * Reports user and database of the thread's session, whose login was not seen, and on the attach
 * mode `symbol` its client's address.
 */
extern int mysql_find_names(struct qj_cpu_state *cpu, struct thread_state *thread);

/* A command is over: finds the text of its prepared statement if that is still unknown. */
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
