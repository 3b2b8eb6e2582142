/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The life of a query on its thread, the same for every server and rung. */
#ifndef QJOULE_QUERY_BPF_H
#define QJOULE_QUERY_BPF_H

#include "slice.bpf.h"

/* What a thread does, for a row of its own. */
struct role_name {
	char bytes[QJ_COMM_BYTES];
};

/*
 * Functions of their own, in query.bpf.c: the verifier looks at each once, not at every call.
 * All return 0.
 */
extern int end_slice(struct qj_cpu_state *cpu, __u64 now);
extern int query_open(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 pid_tgid);
extern int query_reset(struct qj_cpu_state *cpu, struct thread_state *thread);
extern int query_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
extern int child_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now);
extern int child_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
extern int send_ended(struct qj_cpu_state *cpu, struct thread_state *thread);
/* Likewise, in label.bpf.c: the open slice ends, and the next one is the present thread's. */
extern int relabel(struct qj_cpu_state *cpu, __u64 now);
/* Likewise, in session.bpf.c. */
/* From here on the thread does what `role` says, NUL-terminated; 0: what its own name says. */
extern int emit_role(struct qj_cpu_state *cpu, struct thread_state *thread,
		     const struct role_name *role);
extern int emit_session(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 event,
			__u64 addr, __u32 length);

/* From here on the session's queries are summed apart, and the open slice if it is of them. */
static __always_inline void name_sums(struct qj_cpu_state *cpu, struct thread_state *thread,
				      struct qj_session *event)
{
	__u64 session = event->session, naming = new_id(cpu);

	event->naming = naming;
	bpf_map_update_elem(&namings, &session, &naming, BPF_ANY);
	thread->named = session;
	thread->naming = naming;
	if (cpu->query == thread->query)
		cpu->naming = naming;
}

/* Of another session than the thread's, which stays what it is. */
static __always_inline void emit_session_of(struct qj_cpu_state *cpu, struct thread_state *thread,
					    __u64 session, __u32 event, __u64 addr, __u32 bytes)
{
	__u64 own = thread->session, naming = cpu->naming;

	thread->session = session;
	emit_session(cpu, thread, event, addr, bytes);
	thread->session = own;
	if (own != session)
		cpu->naming = naming;
}

/* How long a string of the server's is, its NUL with it, at most `most`; 0: it cannot be read. */
static __always_inline __u32 string_bytes(struct thread_state *thread, __u64 addr, __u32 most)
{
	long bytes = bpf_probe_read_user_str(thread->scratch, most, (const void *)addr);

	return bytes > 0 ? bytes : 0;
}

/* What a thread does is for the request that it has read; else requests are only counted. */
static __always_inline bool owns_time(const struct thread_state *thread)
{
	return thread->rung == QJ_RUNG_SOCKET;
}

/*
 * A machine may not show every context switch (a program does not run within itself, and a kernel
 * may keep tasks of its own from being traced). What runs now is known all the same.
 */
static __always_inline void check_label(struct qj_cpu_state *cpu, __u64 now)
{
	if (cpu->pid != (__u32)bpf_get_current_pid_tgid())
		relabel(cpu, now);
}

/* The open slice is of this thread's query: under what it is summed, as far as it is known. */
static __always_inline void label_query(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	cpu->shape = thread->shape;
	if (!sums_by_tags())
		return;
	cpu->tags = thread->tags;
	cpu->naming = thread_naming(thread);
}

/* Gives the open slice to this thread's query: what ran before stays with its owner. */
static __always_inline void claim_slice(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	/*
	 * A thread that slept between two queries was switched in under the next one's id already:
	 * waking up is its work. Otherwise the slice still bears the previous query's label.
	 */
	check_label(cpu, now);
	if (cpu->query != thread->query)
		end_slice(cpu, now);
	cpu->query = thread->query;
	label_query(cpu, thread);
	cpu->owner_kind = QJ_OWNER_QUERY;
}

static __always_inline void query_begin(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	if (!thread->query)
		query_reset(cpu, thread);
	thread->begin_ns = now;
	claim_slice(cpu, thread, now);
}

/* Leaves the thread to the server: between requests it works for no query. */
static __always_inline void query_release(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	end_slice(cpu, now);
	query_reset(cpu, thread);
	thread->query = 0;
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

/*
 * The thread exits, or has another client: a query that it still served was cut off, by KILL or
 * because its client went away. When it stopped is not known.
 */
static __always_inline void query_abandon(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	if (thread->borrowed || !thread->begin_ns)
		return;
	if (thread->caller.query)
		child_end(cpu, thread, now);
	if (!thread->end_ns && thread->command != QJ_COMMAND_OTHER)
		thread->flags |= QJ_QUERY_OPEN;
	query_end(cpu, thread, thread->end_ns ?: now);
}

/* Another client on this thread. */
static __always_inline void session_begin(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->session = new_id(cpu);
	thread->need = 0;
	thread->head_bytes = 0;
}

/* From here on this session's bytes mean nothing to us: say so, and leave its thread alone. */
static __always_inline void session_opaque(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->phase = PHASE_OPAQUE;
	thread->query = 0;
	thread->begin_ns = 0;
	count_loss(cpu, QJ_LOSS_OPAQUE_SESSION);
	emit_session(cpu, thread, QJ_SESSION_OPAQUE, 0, 0);
}

#endif
