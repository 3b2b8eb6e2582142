/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a PostgreSQL backend keeps of its client, in global variables of its own process: TLS hides
 * none of it. The server writes all of it but the application's name, which is text.
 */
#ifndef QJOULE_POSTGRES_SESSION_BPF_H
#define QJOULE_POSTGRES_SESSION_BPF_H

#include "core/descriptor.bpf.h"
#include "core/query.bpf.h"

/* A pointer at this distance from the start of the backend's data; 0: not known, or null. */
static __always_inline __u64 postgres_pointer(__u32 distance)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 value = 0;

	if (distance)
		bpf_probe_read_user(&value, sizeof(value),
				    (const void *)(BPF_CORE_READ(task, mm, start_data) + distance));
	return value;
}

/* What its application calls itself now: the parameter application_name (utils/misc/guc). */
static __always_inline void postgres_named(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u64 name = postgres_pointer(facts_of(thread)[QJ_POSTGRES_APPLICATION]);
	__u32 bytes = name ? string_bytes(thread, name, QJ_APPLICATION_BYTES) : 0;

	if (name)
		emit_session(cpu, thread, QJ_SESSION_APPLICATION, name, bytes ? bytes - 1 : 0);
}

/*
 * Takes note of the client whose first statement this is. False: the process has none, so what it
 * runs is the server's own (autovacuum, replication).
 *
 * MyProcPort (src/include/miscadmin.h) is null there. What it points to begins with the client's
 * socket in every version (struct Port, src/include/libpq/libpq-be.h).
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
	emit_session(cpu, thread, QJ_SESSION_MET, 0, 0);
	postgres_named(cpu, thread);
	return true;
}

#endif
