/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The attach mode `symbol` with one probe per query, where the kernel shows reads of sockets:
 * sockets.bpf.c has the probes. TLS hides the bytes that a backend reads, but not the time. While
 * it works on a message, its global variable debug_query_string points to the statement
 * (src/backend/tcop/postgres.c); between messages it is null. So a read in between ends the last
 * query and may begin the next one.
 */
#ifndef QJOULE_POSTGRES_NEXT_READ_BPF_H
#define QJOULE_POSTGRES_NEXT_READ_BPF_H

#include "core/task.bpf.h"
#include "core/query.bpf.h"
#include "state.bpf.h"
#include "text.bpf.h"

/*
 * A backend's global variables about its client, which TLS does not hide. The server writes them,
 * except the application's name, which is the client's text.
 */

/* Reads a pointer at this distance from the start of the backend's data; 0: unknown, or null. */
static __always_inline __u64 postgres_pointer(__u32 distance)
{
	__u64 value = 0;

	postgres_variable(&value, sizeof(value), distance);
	return value;
}

/* Reports the application's current name: the parameter application_name (utils/misc/guc). */
static __always_inline void postgres_report_application(struct qj_cpu_state *cpu,
							struct thread_state *thread)
{
	__u64 name = postgres_pointer(facts_of(thread)[QJ_POSTGRES_APPLICATION]);
	__u32 bytes = name ? string_bytes(thread, name, QJ_APPLICATION_BYTES) : 0;

	if (name)
		emit_session(cpu, thread, QJ_SESSION_APPLICATION, name, bytes ? bytes - 1 : 0);
}

/*
 * Reports user and database from the title that the backend has written over its arguments
 * (ps_status.c): a short session has ended before the reader could look into /proc.
 */
static __always_inline void postgres_report_title(struct qj_cpu_state *cpu,
						  struct thread_state *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 title = BPF_CORE_READ(task, mm, arg_start);

	emit_session(cpu, thread, QJ_SESSION_MET, title,
		     string_bytes(thread, title, sizeof(thread->scratch)));
}

/*
 * Reports the session of a client at its first statement. False: the process has no client, so it
 * runs the server's own statements (autovacuum, replication).
 *
 * MyProcPort (src/include/miscadmin.h) is null there. In every version the struct that it points to
 * begins with the client's socket (struct Port, src/include/libpq/libpq-be.h).
 */
static __always_inline bool postgres_report_session(struct qj_cpu_state *cpu,
						    struct thread_state *thread)
{
	__u32 client = facts_of(thread)[QJ_POSTGRES_CLIENT];
	__u64 port = postgres_pointer(client);
	__s32 fd = -1;

	if (client && !port)
		return false;
	if (port && !bpf_probe_read_user(&fd, sizeof(fd), (const void *)port))
		thread->socket = socket_of(fd);
	thread->session = new_id(cpu);
	postgres_report_title(cpu, thread);
	postgres_report_application(cpu, thread);
	return true;
}

/*
 * Ends the query. Its work continues until its thread sleeps: the server reports that it is idle
 * before it sends the reply.
 */
static __always_inline void postgres_ended(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 now)
{
	if (!thread->begin_ns)
		return;
	if (!thread->executions && thread->command == QJ_COMMAND_QUERY)
		thread->command = QJ_COMMAND_PREPARE; /* parsed or bound, not executed */
	if (thread->postgres.sets && thread->executions)
		postgres_report_application(cpu, thread);
	query_end(cpu, thread, now);
	thread->text_addr = 0;
	thread->postgres.sets = 0;
	thread->postgres.ran = 0;
	thread->postgres.reported = 0;
}

/* Returns the address of the backend's current statement; 0: none, or not known. */
static __always_inline __u64 postgres_statement(const struct thread_state *thread)
{
	__u64 statement = 0;

	bpf_probe_read_user(&statement, sizeof(statement),
			    (const void *)thread->postgres.statement);
	return statement;
}

/* True if the session's client has logged in: ClientAuthInProgress, libpq/libpq.h. */
static __always_inline bool postgres_logged_in(const struct thread_state *thread)
{
	__u32 distance = facts_of(thread)[QJ_POSTGRES_AUTHENTICATES];

	return distance && !(__u8)postgres_pointer(distance);
}

/* True if the thread serves a client; reports the client once. */
static __always_inline bool postgres_serves(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (thread->session)
		return true;
	if (!postgres_logged_in(thread))
		return false;
	if (!postgres_report_session(cpu, thread))
		thread->phase = PHASE_OPAQUE;
	thread->postgres.statement = BPF_CORE_READ(bpf_get_current_task_btf(), mm, start_data) +
				     facts_of(thread)[QJ_POSTGRES_STATEMENT];
	return thread->session;
}

/*
 * A request was read that executed nothing, such as a Parse. It has no record, and its time goes to
 * the next query, which has the same id.
 */
static __always_inline void postgres_discard(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->begin_ns = 0;
	thread->text_addr = 0;
	if (plan.mode != QJ_MODE_LIVE)
		return;
	cpu->owner_kind = QJ_OWNER_SERVER;
	cpu->query = 0;
}

/* Detects when a replica's connection starts and stops to stream. Returns true if it streams. */
static __always_inline bool postgres_streaming(struct qj_cpu_state *cpu,
					       struct thread_state *thread, __u64 text)
{
	if (!text) {
		postgres_stream_end(cpu, thread);
		return false;
	}
	if (!thread->postgres.dumps && !thread->postgres.ran && postgres_streams(text))
		postgres_stream_begin(cpu, thread, bpf_ktime_get_ns());
	return thread->postgres.dumps;
}

/* `got`: number of bytes read; negative: nothing yet; 0: the client has disconnected. */
static __always_inline void postgres_next_read(struct qj_cpu_state *cpu,
					       struct thread_state *thread, __u64 sk, int got)
{
	__u64 now, text;
	bool worked;

	if (!facts_of(thread)[QJ_POSTGRES_NEXT_READ] || thread->phase == PHASE_OPAQUE ||
	    thread->borrowed || (thread->socket && thread->socket != sk))
		return;
	worked =
	    thread->postgres.ran || thread->postgres.reported || thread->flags & QJ_QUERY_ERROR;
	if (thread->begin_ns && !worked && got > 0)
		return; /* the rest of a request */
	if (thread->begin_ns || thread->postgres.dumps) {
		text = postgres_statement(thread);
		if (postgres_streaming(cpu, thread, text) || text)
			return; /* it reads data for its statement */
	}
	now = bpf_ktime_get_ns();
	if (thread->begin_ns && worked)
		postgres_ended(cpu, thread, now);
	else if (thread->begin_ns)
		postgres_discard(cpu, thread);
	if (got > 0 && postgres_serves(cpu, thread))
		query_begin(cpu, thread, now);
}

#endif
