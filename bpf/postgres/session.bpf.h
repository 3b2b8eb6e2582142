/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a PostgreSQL backend stores about its client, in global variables of its own process: TLS
 * does not hide it. The server writes all of it, except the application's name, which is the
 * client's text.
 */
#ifndef QJOULE_POSTGRES_SESSION_BPF_H
#define QJOULE_POSTGRES_SESSION_BPF_H

#include "core/task.bpf.h"
#include "core/query.bpf.h"
#include "state.bpf.h"

/* A pointer at this distance from the start of the backend's data; 0: unknown, or null. */
static __always_inline __u64 postgres_pointer(__u32 distance)
{
	__u64 value = 0;

	postgres_variable(&value, sizeof(value), distance);
	return value;
}

/* Reports the application's current name: the parameter application_name (utils/misc/guc). */
static __always_inline void postgres_named(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u64 name = postgres_pointer(facts_of(thread)[QJ_POSTGRES_APPLICATION]);
	__u32 bytes = name ? string_bytes(thread, name, QJ_APPLICATION_BYTES) : 0;

	if (name)
		emit_session(cpu, thread, QJ_SESSION_APPLICATION, name, bytes ? bytes - 1 : 0);
}

/*
 * The title that the backend has written over its arguments names user and database (ps_status.c).
 * It is sent along: a short session has ended before the reader could look into /proc.
 */
static __always_inline void postgres_titled(struct qj_cpu_state *cpu, struct thread_state *thread)
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
static __always_inline bool postgres_met(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u32 client = facts_of(thread)[QJ_POSTGRES_CLIENT];
	__u64 port = postgres_pointer(client);
	__s32 fd = -1;

	if (client && !port)
		return false;
	if (port && !bpf_probe_read_user(&fd, sizeof(fd), (const void *)port))
		thread->socket = socket_of(fd);
	thread->session = new_id(cpu);
	postgres_titled(cpu, thread);
	postgres_named(cpu, thread);
	return true;
}

#endif
