/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The life of a query on its thread, the same for every server and every attach mode. */
#ifndef QJOULE_QUERY_BPF_H
#define QJOULE_QUERY_BPF_H

#include "slice.bpf.h"
#include "waits.bpf.h"

/* The name of a thread's role; each role gets its own row. */
struct role_name {
	char bytes[QJ_COMM_BYTES];
};

/* Separate functions in query.bpf.c, which the verifier checks once, not per call. All return 0. */
extern int end_slice(struct qj_cpu_state *cpu, __u64 now);
extern int query_open(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 pid_tgid);
extern int query_reset(struct qj_cpu_state *cpu, struct thread_state *thread);
extern int query_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
extern int child_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now);
extern int child_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
extern int helper_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns,
		      __u64 pid_tgid);
/* Sends the thread's last ended or drawn query, if it has not been sent. */
extern int send_ended(struct qj_cpu_state *cpu, struct thread_state *thread);
/* Sends how the wait ended that was drawn last, if it has ended. */
extern int send_wait_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 pid);
extern int name_use(struct qj_cpu_state *cpu, struct thread_state *thread);
/* Relabels the open slice with the current thread; in segments.bpf.c. */
extern int relabel(struct qj_cpu_state *cpu, __u64 now);
/* In statement.bpf.c: */
/* Sets the thread's role, NUL-terminated. 0: its own name is its role. */
extern int emit_role(struct qj_cpu_state *cpu, struct thread_state *thread,
		     const struct role_name *role);
extern int emit_session(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 event,
			__u64 addr, __u32 length);

/*
 * Sums the session's queries separately from now on; relabels the open slice if it is theirs.
 */
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

/* Emits an event of a session other than the thread's own, which does not change. */
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

/* Length of a string in the server's memory including its NUL, at most `most`; 0 if unreadable. */
static __always_inline __u32 string_bytes(struct thread_state *thread, __u64 addr, __u32 most)
{
	long bytes = bpf_probe_read_user_str(thread->scratch, most, (const void *)addr);

	return bytes > 0 ? bytes : 0;
}

/* True if the thread works for the request that it has read. If not, requests are only counted. */
static __always_inline bool owns_time(const struct thread_state *thread)
{
	return thread->attach_mode == QJ_ATTACH_SOCKET;
}

/*
 * Relabels if the current task is not the slice's: some context switches may be invisible, since a
 * kernel may exempt its own tasks from tracing (see running_kind() in segments.bpf.c).
 */
static __always_inline void check_label(struct qj_cpu_state *cpu, __u64 now)
{
	if (cpu->serving || cpu->pid == (__u32)bpf_get_current_pid_tgid())
		return;
	end_slice(cpu, now);
	relabel(cpu, now);
}

/* Labels the open slice with this thread's query and the sums' keys known so far. */
static __always_inline void label_query(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	cpu->shape = thread->shape;
	if (!sums_by_tags())
		return;
	cpu->tags = thread->tags;
	cpu->naming = thread_naming(thread);
}

/*
 * Labels a query that has begun without a shape, and moves its use in this window to the shape.
 */
static __always_inline void label_begun(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	label_query(cpu, thread);
	if (thread->unnamed.query)
		name_use(cpu, thread);
}

/* Gives the open slice to this thread's query. Time before stays with its owner. */
static __always_inline void claim_slice(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	/*
	 * If the thread slept between two queries, its slice already has the next query's id:
	 * waking up is that query's work. Otherwise the slice still has the previous query's label.
	 */
	check_label(cpu, now);
	if (cpu->query != thread->query)
		end_slice(cpu, now);
	cpu->query = thread->query;
	label_query(cpu, thread);
	cpu->owner_kind = QJ_OWNER_QUERY;
}

/* When the slice claimed at `now` began; a tick meanwhile left it to the previous owner. */
static __always_inline __u64 slice_began(const struct qj_cpu_state *cpu, __u64 now)
{
	__u64 t0 = *(volatile __u64 *)&cpu->t0_ns;

	return t0 > now ? t0 : now;
}

static __always_inline void query_begin(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	if (!thread->query)
		query_reset(cpu, thread);
	claim_slice(cpu, thread, now);
	waits_clear(&thread->waits);
	thread->begin_ns = cpu->event_ns = slice_began(cpu, now);
	thread->flags |= QJ_QUERY_WAITS;
}

/* A reply was sent, which may be the query's last. */
static __always_inline void reply_sent(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 now)
{
	check_label(cpu, now);
	thread->end_ns = cpu->event_ns = slice_began(cpu, now);
	waits_mark(thread);
}

/* Returns the thread to the server: between requests it works for no query. */
static __always_inline void query_release(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	check_label(cpu, now);
	end_slice(cpu, now);
	query_reset(cpu, thread);
	thread->query = 0;
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

/* Ends a helper's work for its leader's query. */
static __always_inline void helper_leave(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 now)
{
	if (!thread->borrowed)
		return;
	check_label(cpu, now);
	cpu->event_ns = slice_began(cpu, now);
	helper_end(cpu, thread, cpu->event_ns, bpf_get_current_pid_tgid());
}

/*
 * The thread exits or gets another client. A query that it still served was cut off, by KILL or
 * because its client disconnected. When that query stopped is not known.
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

/* This thread now serves another client. */
static __always_inline void session_begin(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->session = new_id(cpu);
	thread->need = 0;
	thread->head_bytes = 0;
}

/* Stops following a thread whose session is unreadable from now on, and reports that. */
static __always_inline void session_opaque(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->phase = PHASE_OPAQUE;
	thread->query = 0;
	thread->begin_ns = 0;
	count_loss(cpu, QJ_LOSS_OPAQUE_SESSION);
	emit_session(cpu, thread, QJ_SESSION_OPAQUE, 0, 0);
}

/* ---- queries with helper threads: each helper works for the query of its leader ---- */

/* The query that a helper works for. */
struct leader {
	__u64 query;
	__u64 shape;
	__u64 tags;
	__u64 session;
};

static __always_inline struct leader leader_of(const struct thread_state *thread)
{
	return (struct leader){.query = thread->query,
			       .shape = thread->shape,
			       .tags = thread->tags,
			       .session = thread->session};
}

/* Makes this thread work for the leader's query, if it does not already. */
static __always_inline void leader_join(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct leader *leader)
{
	__u64 now = bpf_ktime_get_ns();

	if (thread->borrowed && thread->query == leader->query)
		return;
	helper_leave(cpu, thread, now);
	thread->query = leader->query;
	thread->shape = leader->shape;
	thread->tags = leader->tags;
	thread->session = leader->session;
	thread->borrowed = 1;
	claim_slice(cpu, thread, now);
	waits_clear(&thread->waits);
	thread->begin_ns = cpu->event_ns = slice_began(cpu, now);
}

#endif
