/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of PostgreSQL's protocol 3: a type byte, a length, a body. A client's request is
 * one simple Query, or the messages up to a Sync. The server reads them into one buffer of 8 KB, so
 * one read may contain many messages, and one message may span many reads. A connection's first
 * packets have no type: a length, a code, a body. PostgreSQL documentation, "Frontend/Backend
 * Protocol", "Message Formats".
 */
#ifndef QJOULE_POSTGRES_WIRE_BPF_H
#define QJOULE_POSTGRES_WIRE_BPF_H

#include "join.bpf.h"
#include "messages.bpf.h"
#include "reply.bpf.h"
#include "stream.bpf.h"

static __always_inline bool postgres_is_data(__u8 type)
{
	return type == 'd' || type == 'c' || type == 'f';
}

static __always_inline void postgres_end(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 end_ns)
{
	postgres_answered(thread);
	if (thread->postgres.unknown && thread->executions == 1 && !thread->shape &&
	    !(thread->flags & QJ_QUERY_ERROR)) /* there may be no such statement */
		statement_unseen(cpu, thread, thread->postgres.unknown);
	thread->postgres.last_shape = thread->shape;
	if (thread->postgres.changes && thread->flags & QJ_QUERY_ERROR)
		emit_session(cpu, thread, QJ_SESSION_KEPT, 0, 0);
	query_end(cpu, thread, end_ns);
}

/*
 * Data for a COPY that was not recognised as one (a comment before it, several statements in one)
 * and seemed to be over when its server began to wait. This is the rest of its work, no new
 * execution.
 */
static __always_inline void postgres_go_on(struct postgres_walk *walk)
{
	struct thread_state *thread = walk->thread;

	query_begin(walk->cpu, thread, walk->now);
	thread->command = QJ_COMMAND_QUERY;
	thread->shape = thread->postgres.last_shape;
	if (!thread->shape)
		thread->flags |= QJ_QUERY_NO_TEXT;
	thread->postgres.synced = 1;
	thread->postgres.requests = 1;
	thread->postgres.may_continue = 1;
}

static __always_inline void postgres_begin(struct postgres_walk *walk, __u8 type)
{
	struct thread_state *thread = walk->thread;

	if (type == 'p' || postgres_is_data(type)) { /* a login, or a COPY, continues */
		if (!thread->begin_ns && !thread->postgres.dumps && type != 'p')
			postgres_go_on(walk);
		thread->end_ns = 0;
		return;
	}
	if (thread->begin_ns && thread->postgres.synced && walk->fresh)
		postgres_end(walk->cpu, thread, thread->end_ns ?: walk->now);
	walk->fresh = 0;
	thread->end_ns = 0;
	postgres_stream_end(walk->cpu, thread);
	if (!thread->begin_ns)
		query_begin(walk->cpu, thread, walk->now);
}

/*
 * What a message means. Not inlined, and nothing here takes over the open slice: the verifier would
 * add this frame to those of the functions that do.
 */
static __noinline int postgres_content(struct postgres_walk *walk, __u8 type, __u32 here)
{
	struct thread_state *thread = walk->thread;

	switch (type) {
	case 'Q':
		postgres_query(walk, here);
		thread->postgres.synced = 1;
		thread->postgres.requests++;
		break;
	case 'P':
		postgres_parse(walk, here);
		break;
	case 'B':
		postgres_bind(walk, here);
		break;
	case 'E':
		postgres_execute(walk, here);
		break;
	case 'S':
	case 'F':
		thread->postgres.synced = 1;
		thread->postgres.requests++;
		break;
	case 'H':
		if (thread->executions) /* their reply is sent before the rest */
			thread->postgres.requests++;
		break;
	}
	return 0;
}

/* Handles a message; this read contains `here` bytes of its body, from walk->addr on. */
static __always_inline void postgres_dispatch(struct postgres_walk *walk, __u8 type, __u32 here)
{
	struct thread_state *thread = walk->thread;

	postgres_begin(walk, type);
	/* A Query or a Sync may have come earlier in this read: this request has not ended. */
	if (type == 'P' || type == 'B' || type == 'E' || type == 'D' || type == 'C')
		thread->postgres.synced = 0;
	if (type == 'Q' && here > 8 && postgres_streams(walk->addr)) {
		postgres_stream_begin(walk->cpu, thread, walk->now);
		return;
	}
	postgres_content(walk, type, here);
	label_query(walk->cpu, thread);
}

/* Framing lost: sends the current query as far as it is known, then waits for a clear boundary. */
static __always_inline void postgres_lost(struct postgres_walk *walk)
{
	struct thread_state *thread = walk->thread;

	count_loss(walk->cpu, QJ_LOSS_FRAMING);
	query_abandon(walk->cpu, thread, walk->now);
	query_release(walk->cpu, thread, walk->now);
	thread->phase = PHASE_LOST;
	thread->need = 0;
	thread->head_bytes = 0;
	walk->left = 0;
}

static __always_inline bool postgres_is_code(__u32 code)
{
	return code >> 16 == POSTGRES_PROTOCOL_3 || code == POSTGRES_CANCEL ||
	       code == POSTGRES_SSL || code == POSTGRES_GSS;
}

/* The first packets of a connection; `whole`: the header came in one piece, before walk->addr. */
static __always_inline void postgres_startup(struct postgres_walk *walk, bool whole)
{
	struct thread_state *thread = walk->thread;
	__u32 length = postgres_uint(thread->head), code = postgres_uint(&thread->head[4]);
	__u32 here;

	if (thread->head[0] == TLS_HANDSHAKE) {
		session_opaque(walk->cpu, thread);
		walk->left = 0;
		return;
	}
	if (thread->postgres.asks_gss &&
	    !postgres_is_code(code)) { /* GSSAPI tokens, each after a length */
		session_opaque(walk->cpu, thread);
		walk->left = 0;
		return;
	}
	if (length < POSTGRES_STARTUP || length > POSTGRES_STARTUP_MAX) {
		/* Not a client: a worker that reads from another server (replication). */
		thread->phase = PHASE_OPAQUE;
		walk->left = 0;
		return;
	}
	thread->postgres.asks_gss = code == POSTGRES_GSS;
	thread->need = length - POSTGRES_STARTUP;
	/*
	 * The server answers requests for TLS or GSS with one byte; then TLS or the next packet
	 * follows. A request to cancel another session's query ends its own connection.
	 */
	if (code >> 16 != POSTGRES_PROTOCOL_3)
		return;
	query_begin(walk->cpu, thread, walk->now);
	thread->command = QJ_COMMAND_CONNECT;
	thread->postgres.synced = 1;
	thread->postgres.requests = 1;
	thread->postgres.may_continue = 1; /* with password messages */
	thread->phase = PHASE_READY;
	here = thread->need < walk->left ? thread->need : walk->left;
	emit_session(walk->cpu, thread, QJ_SESSION_OPEN, walk->addr - POSTGRES_STARTUP,
		     whole ? POSTGRES_STARTUP + here : 0);
}

/* Collects a header; true once it is complete. It rarely comes in pieces, then byte by byte. */
static __always_inline bool postgres_take_header(struct postgres_walk *walk, bool *whole)
{
	struct thread_state *thread = walk->thread;
	__u32 size = thread->phase == PHASE_STARTUP ? POSTGRES_STARTUP : POSTGRES_HEADER;
	__u32 have = thread->head_bytes & 7, take = 1;

	*whole = !have && walk->left >= size;
	if (!*whole) {
		bpf_probe_read_user(&thread->head[have], 1, (const void *)walk->addr);
	} else if (size == POSTGRES_STARTUP) {
		take = POSTGRES_STARTUP;
		bpf_probe_read_user(thread->head, POSTGRES_STARTUP, (const void *)walk->addr);
	} else {
		take = POSTGRES_HEADER;
		bpf_probe_read_user(thread->head, POSTGRES_HEADER, (const void *)walk->addr);
	}
	walk->addr += take;
	walk->left -= take;
	thread->head_bytes = have + take;
	return thread->head_bytes >= size;
}

/* One message of a read, or the part of it in this read. */
static long postgres_message(__u32 i, struct postgres_walk *walk)
{
	struct thread_state *thread = walk->thread;
	__u32 length, here;
	bool whole;

	if (!walk->left)
		return 1;
	if (!thread->need) {
		if (!postgres_take_header(walk, &whole))
			return 0;
		thread->head_bytes = 0;
		if (thread->phase == PHASE_STARTUP) {
			postgres_startup(walk, whole);
		} else {
			length = postgres_uint(&thread->head[1]);
			if (!postgres_plausible(thread->head[0], length)) {
				postgres_lost(walk);
				return 1;
			}
			thread->need = length - 4;
			here = thread->need < walk->left ? thread->need : walk->left;
			postgres_dispatch(walk, thread->head[0], here);
		}
	}
	/* Now, or for a message that began in an earlier read. */
	here = thread->need < walk->left ? thread->need : walk->left;
	thread->need -= here;
	walk->addr += here;
	walk->left -= here;
	return 0;
}

static __always_inline void postgres_read(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 addr, __u32 bytes, __u64 now)
{
	struct postgres_walk walk = {
	    .cpu = cpu,
	    .thread = thread,
	    .addr = addr,
	    .now = now,
	    .left = bytes,
	    .fresh = 1,
	};

	if ((thread->phase == PHASE_UNKNOWN || thread->phase == PHASE_LOST) &&
	    !postgres_joins(cpu, thread, addr, bytes))
		return;
	bpf_loop(POSTGRES_MAX_WALK, postgres_message, &walk, 0);
	if (walk.left)
		postgres_lost(&walk);
}

/* Nothing to read: the request was answered, if the client has ended it. */
static __always_inline void postgres_wait(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	if (!thread->begin_ns || !thread->postgres.synced || thread->need || thread->head_bytes)
		return;
	if (thread->postgres.may_continue)
		thread->end_ns = now;
	else
		postgres_end(cpu, thread, now);
}

#endif
