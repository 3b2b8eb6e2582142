/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of PostgreSQL's protocol 3: a type byte, a length, a body. A client's request is
 * one simple Query, or the messages up to a Sync; the server reads them into one buffer of 8 KB,
 * so that many may come in one read, and one in many reads.
 * PostgreSQL documentation, "Frontend/Backend Protocol", "Message Formats".
 */
#ifndef QJOULE_POSTGRES_WIRE_BPF_H
#define QJOULE_POSTGRES_WIRE_BPF_H

#include "statement.bpf.h"

#define POSTGRES_HEADER	     5
#define POSTGRES_PROTOCOL_3  3 /* major version, upper half of the startup code */
#define POSTGRES_CANCEL	     80877102
#define POSTGRES_SSL	     80877103
#define POSTGRES_GSS	     80877104
#define POSTGRES_MAX_MESSAGE (1u << 30)
#define POSTGRES_MAX_WALK    1024 /* messages in one read of 8 KB, each at least 5 bytes */
#define TLS_HANDSHAKE	     0x16

struct postgres_walk {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	__u64 addr;
	__u64 now;
	__u32 left;
	__u8 fresh; /* no message of this read has begun a query yet */
};

/*
 * The statements of one request share its time, and nothing tells their shares apart: unless all
 * that are executed have the same shape, none is claimed. `before` and `flags`: what held before
 * the latest of them.
 */
static __always_inline void postgres_settle(struct thread_state *thread, __u64 before, __u32 flags)
{
	if (!thread->executions)
		return;
	if (thread->shape && thread->shape == before && !(flags & QJ_QUERY_NO_TEXT)) {
		thread->flags = flags;
		return;
	}
	thread->shape = 0;
	thread->flags |= QJ_QUERY_PIPELINED | QJ_QUERY_NO_TEXT;
}

/*
 * A name's hash, and its length with the NUL; 0 if this read does not hold it whole. Names longer
 * than the server keeps are cut.
 */
static __always_inline __u32 postgres_name(struct thread_state *thread, __u64 addr, __u32 limit,
					   __u64 *hash)
{
	__u64 room = at_most(limit, QJ_SHAPE_CHUNK);
	__u64 h = 0xcbf29ce484222325ULL; /* FNV-1a */
	long got = bpf_probe_read_user_str(thread->chunk.bytes, room, (const void *)addr);

	*hash = 0;
	if (got <= 0 || got >= limit) /* something always follows a name */
		return 0;
	if (got == 1)
		return 1;
	for (int i = 0; i < QJ_SHAPE_CHUNK; i++) {
		if (i >= got - 1)
			break;
		h = (h ^ thread->chunk.bytes[i]) * 0x100000001b3ULL;
	}
	*hash = h;
	return got;
}

static __always_inline void postgres_parse(struct postgres_walk *walk, __u32 here)
{
	struct thread_state *thread = walk->thread;
	__u64 addr = walk->addr, name, before = thread->shape;
	__u32 flags = thread->flags, length = postgres_name(thread, addr, here, &name);

	if (thread->command == QJ_COMMAND_OTHER)
		thread->command = QJ_COMMAND_PREPARE;
	/* Where the name is cut off, it is taken for none, lest an older text passes for this one.
	 */
	statement_string(walk->cpu, thread, addr + length, length ? here - length : 0);
	prepared_learn(thread, name);
	if (thread->executions) { /* preparing says nothing about what was executed before */
		thread->shape = before;
		thread->flags = flags;
	}
}

static __always_inline void postgres_bind(struct postgres_walk *walk, __u32 here)
{
	struct thread_state *thread = walk->thread;
	__u64 addr = walk->addr, name, before = thread->shape;
	__u32 flags = thread->flags, portal = postgres_name(thread, addr, here, &name);

	if (portal && postgres_name(thread, addr + portal, here - portal, &name)) {
		prepared_recall(thread, name);
	} else {
		count_loss(walk->cpu, QJ_LOSS_TEXT);
		thread->shape = 0;
		thread->flags |= QJ_QUERY_NO_TEXT;
	}
	thread->bound = 1;
	if (thread->command != QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_EXECUTE;
	postgres_settle(thread, before, flags);
}

static __always_inline void postgres_query(struct postgres_walk *walk, __u32 here)
{
	struct thread_state *thread = walk->thread;
	__u64 before = thread->shape;
	__u32 flags = thread->flags;

	if (!thread->executions)
		thread->command = QJ_COMMAND_QUERY;
	statement_string(walk->cpu, thread, walk->addr, here);
	postgres_settle(thread, before, flags);
	thread->executions++;
	if (thread->executions > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
}

static __always_inline void postgres_execute(struct thread_state *thread)
{
	if (!thread->bound) /* more rows of a portal that was opened before: no new execution */
		return;
	thread->bound = 0;
	thread->executions++;
	if (thread->executions > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
	if (thread->command == QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_QUERY; /* text and execution in one request */
}

/* Copy data belongs to the query that asked for it; all else may begin one. */
static __always_inline bool postgres_begins(__u8 type)
{
	return type != 'd' && type != 'c' && type != 'f' && type != 'p';
}

static __always_inline bool postgres_plausible(__u8 type, __u32 length)
{
	if (length < 4 || length > POSTGRES_MAX_MESSAGE)
		return false;
	switch (type) {
	case 'Q':
	case 'P':
	case 'B':
	case 'E':
	case 'S':
	case 'D':
	case 'C':
	case 'H':
	case 'F':
	case 'X':
	case 'd':
	case 'c':
	case 'f':
	case 'p':
		return true;
	}
	return false;
}

static __always_inline void postgres_begin(struct postgres_walk *walk, __u8 type)
{
	struct thread_state *thread = walk->thread;

	if (!postgres_begins(type)) {
		thread->end_ns = 0; /* data: the query goes on */
		return;
	}
	if (thread->begin_ns && thread->synced && walk->fresh)
		query_end(walk->cpu, thread, thread->end_ns ?: walk->now);
	walk->fresh = 0;
	thread->end_ns = 0;
	if (!thread->begin_ns)
		query_begin(walk->cpu, thread, walk->now);
}

/* A message, of whose body this read holds `here` bytes, from walk->addr on. */
static __always_inline void postgres_dispatch(struct postgres_walk *walk, __u8 type, __u32 here)
{
	struct thread_state *thread = walk->thread;

	postgres_begin(walk, type);
	switch (type) {
	case 'Q':
		postgres_query(walk, here);
		thread->synced = 1;
		break;
	case 'P':
		postgres_parse(walk, here);
		break;
	case 'B':
		postgres_bind(walk, here);
		break;
	case 'E':
		postgres_execute(thread);
		break;
	case 'S':
	case 'F':
		thread->synced = 1;
		break;
	}
	walk->cpu->shape = thread->shape;
}

/* Gathers a header; true once it is whole. In pieces, byte by byte: that is rare. */
static __always_inline bool postgres_take_header(struct postgres_walk *walk)
{
	struct thread_state *thread = walk->thread;
	__u32 have = thread->head_bytes & 7, take = 1;

	if (!have && walk->left >= POSTGRES_HEADER) {
		take = POSTGRES_HEADER;
		bpf_probe_read_user(thread->head, POSTGRES_HEADER, (const void *)walk->addr);
	} else {
		bpf_probe_read_user(&thread->head[have < 4 ? have : 4], 1,
				    (const void *)walk->addr);
	}
	walk->addr += take;
	walk->left -= take;
	thread->head_bytes = have + take;
	return thread->head_bytes == POSTGRES_HEADER;
}

/* One message of a read, or what this read holds of it. */
static long postgres_message(__u32 i, struct postgres_walk *walk)
{
	struct thread_state *thread = walk->thread;
	__u32 length, here;

	if (!walk->left)
		return 1;
	if (!thread->need) {
		if (!postgres_take_header(walk))
			return 0;
		thread->head_bytes = 0;
		length = (__u32)thread->head[1] << 24 | thread->head[2] << 16 |
			 thread->head[3] << 8 | thread->head[4];
		if (!postgres_plausible(thread->head[0], length)) {
			count_loss(walk->cpu, QJ_LOSS_FRAMING);
			walk->left = 0;
			return 1;
		}
		thread->need = length - 4;
		here = thread->need < walk->left ? thread->need : walk->left;
		postgres_dispatch(walk, thread->head[0], here);
	} else { /* the rest of a message that began in an earlier read */
		here = thread->need < walk->left ? thread->need : walk->left;
	}
	thread->need -= here;
	walk->addr += here;
	walk->left -= here;
	return 0;
}

/* A connection's first packets have no type byte. Returns false once ordinary messages follow. */
static __always_inline bool postgres_startup(struct qj_cpu_state *cpu, struct thread_state *thread,
					     __u64 addr, __u32 bytes, __u64 now)
{
	__u32 packet[2] = {}, length, code;

	if (bpf_probe_read_user(packet, sizeof(packet), (const void *)addr))
		return true;
	length = bpf_ntohl(packet[0]);
	code = bpf_ntohl(packet[1]);
	if ((packet[0] & 0xff) == TLS_HANDSHAKE) {
		session_opaque(cpu, thread);
		return true;
	}
	if (length == 8 && (code == POSTGRES_SSL || code == POSTGRES_GSS))
		return true; /* the server answers with one byte; then TLS, or the startup again */
	if (length < 8 || length > 10000 || code == POSTGRES_CANCEL)
		return true;
	if (code >> 16 != POSTGRES_PROTOCOL_3) {
		thread->phase = PHASE_READY; /* attached in the middle after all */
		return false;
	}
	query_begin(cpu, thread, now);
	thread->command = QJ_COMMAND_CONNECT;
	thread->synced = 1;
	thread->phase = PHASE_READY;
	emit_session(cpu, thread, QJ_SESSION_OPEN, addr, bytes < length ? bytes : length);
	return true;
}

static __always_inline void postgres_received(struct qj_cpu_state *cpu, struct thread_state *thread,
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

	if (thread->phase == PHASE_STARTUP && postgres_startup(cpu, thread, addr, bytes, now))
		return;
	bpf_loop(POSTGRES_MAX_WALK + POSTGRES_HEADER, postgres_message, &walk, 0);
	if (walk.left) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		thread->need = 0;
		thread->head_bytes = 0;
	}
}

/* Nothing to read: the request has been answered, if the client has ended it. */
static __always_inline void postgres_wait(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	if (!thread->begin_ns || !thread->synced || thread->need || thread->head_bytes)
		return;
	if (thread->may_continue)
		thread->end_ns = now;
	else
		query_end(cpu, thread, now);
}

#endif
