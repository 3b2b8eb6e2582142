/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The life of a query on its thread, the same for every server and rung. */
#ifndef QJOULE_QUERY_BPF_H
#define QJOULE_QUERY_BPF_H

#include "stretch.bpf.h"

/* Gives the open stretch to this thread's query: what ran before stays with its owner. */
static __always_inline void claim_stretch(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	/*
	 * A thread that slept between two queries was switched in under the next one's id already:
	 * waking up is its work. Otherwise the stretch still bears the previous query's label.
	 */
	if (cpu->query != thread->query)
		close_stretch(cpu, now);
	cpu->query = thread->query;
	cpu->shape = thread->shape;
	cpu->owner_kind = QJ_OWNER_QUERY;
}

static __always_inline void query_reset(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->query = new_id(cpu);
	thread->begin_ns = 0;
	thread->end_ns = 0;
	thread->shape = 0;
	thread->statement_bytes = 0;
	thread->executions = 0;
	thread->flags = 0;
	thread->command = QJ_COMMAND_OTHER;
	thread->text_left = 0;
	thread->synced = 0;
	thread->bound = 0;
	thread->may_continue = 0;
}

static __always_inline void query_begin(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	if (!thread->query)
		query_reset(cpu, thread);
	thread->begin_ns = now;
	claim_stretch(cpu, thread, now);
}

static __always_inline void sum_query(struct qj_cpu_state *cpu, const struct thread_state *thread,
				      __u64 end_ns)
{
	struct qj_sums_key key = {};
	struct qj_sums *row;
	__u64 latency_ns = end_ns - thread->begin_ns;

	if (!thread->executions)
		return;
	key.shape = thread->shape;
	key.package = plan.package_of[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)];
	key.server = thread->server;
	key.owner_kind = QJ_OWNER_QUERY;
	row = sums_of(cpu, &key, control.epoch);
	if (!row) {
		count_loss(cpu, QJ_LOSS_QUERY);
		return;
	}
	__sync_fetch_and_add(&row->calls, thread->executions);
	__sync_fetch_and_add(&row->latency_ns, latency_ns);
	__sync_fetch_and_add(&row->latency[latency_bucket(latency_ns)], 1);
}

static __always_inline void emit_query(struct qj_cpu_state *cpu, const struct thread_state *thread,
				       __u64 end_ns, __u32 pid, __u32 tgid)
{
	struct qj_ring_query *r = reserve(sizeof(*r));

	if (!r) {
		count_loss(cpu, QJ_LOSS_QUERY);
		return;
	}
	r->head.block = QJ_BLOCK_QUERY;
	r->head.text_bytes = 0;
	r->query.query = thread->query;
	r->query.begin_ns = thread->begin_ns;
	r->query.end_ns = end_ns;
	r->query.session = thread->session;
	r->query.shape = thread->shape;
	r->query.pid = pid;
	r->query.tgid = tgid;
	r->query.executions = thread->executions;
	r->query.flags = thread->flags;
	r->query.statement_bytes = thread->statement_bytes;
	r->query.server = thread->server;
	r->query.rung = thread->rung;
	r->query.command = thread->command;
	submit(r);
}

/*
 * Ends the thread's query and gives the thread the id of its next one. The open stretch keeps its
 * label until the thread sleeps: going back to wait is the end of this query's work.
 */
static __always_inline void query_end(struct qj_cpu_state *cpu, struct thread_state *thread,
				      __u64 end_ns)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (plan.mode == QJ_MODE_LIVE)
		sum_query(cpu, thread, end_ns);
	else
		emit_query(cpu, thread, end_ns, (__u32)id, id >> 32);
	query_reset(cpu, thread);
}

/* The thread exits: a query that it still served ends here. */
static __always_inline void thread_gone(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 now)
{
	if (thread->borrowed || !thread->begin_ns)
		return;
	if (thread->end_ns) {
		query_end(cpu, thread, thread->end_ns);
		return;
	}
	thread->flags |= QJ_QUERY_OPEN;
	query_end(cpu, thread, now);
}

static __always_inline void emit_session(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u8 event, __u64 addr, __u32 bytes)
{
	struct qj_ring_session *r = reserve(sizeof(*r));
	__u64 id = bpf_get_current_pid_tgid();

	if (!r) {
		count_loss(cpu, QJ_LOSS_SESSION);
		return;
	}
	bytes = at_most(bytes, QJ_STARTUP_BYTES);
	r->head.block = QJ_BLOCK_SESSION;
	r->head.text_bytes = bytes;
	r->session.session = thread->session;
	r->session.t_ns = bpf_ktime_get_ns();
	r->session.pid = (__u32)id;
	r->session.tgid = id >> 32;
	r->session.text_bytes = bytes;
	r->session.server = thread->server;
	r->session.event = event;
	r->session.server_kind = thread->server_kind;
	if (bytes && bpf_probe_read_user(r->bytes, bytes, (const void *)addr)) {
		r->head.text_bytes = 0;
		r->session.text_bytes = 0;
	}
	submit(r);
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
