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

#include "requests.bpf.h"
#include "state.bpf.h"

/*
 * Joins a PostgreSQL connection that was already open, or whose framing was lost, at a read that
 * starts with a statement and consists of complete messages, unlike the middle of a message.
 */

struct postgres_skim {
	__u64 addr;
	__u32 left;
	__u8 first; /* type of the first message */
};

static __always_inline bool postgres_is_letter(__u8 byte)
{
	return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
}

static long postgres_skim(__u32 i, struct postgres_skim *skim)
{
	__u8 head[POSTGRES_HEADER] = {};
	__u32 size;

	if (skim->left < POSTGRES_HEADER)
		return 1;
	bpf_probe_read_user(head, sizeof(head), (const void *)skim->addr);
	size = postgres_uint(&head[1]) + 1;
	if (!postgres_is_letter(head[0]) || size < POSTGRES_HEADER || size > skim->left)
		return 1;
	if (!skim->first)
		skim->first = head[0];
	skim->addr += size;
	skim->left -= size;
	return 0;
}

/* The startup packet of a connection that was accepted while tracing began. */
static __always_inline bool postgres_is_startup(__u64 addr, __u32 bytes)
{
	__u8 head[POSTGRES_STARTUP] = {};

	bpf_probe_read_user(head, sizeof(head), (const void *)addr);
	return bytes >= POSTGRES_STARTUP && postgres_uint(head) == bytes &&
	       postgres_uint(&head[4]) >> 16 == POSTGRES_PROTOCOL_3;
}

/*
 * Complete messages that begin with another type are no loss: a client's data for a COPY, or what a
 * worker reads from another server.
 */
static __always_inline bool postgres_joins(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes)
{
	struct postgres_skim skim = {.addr = addr, .left = bytes};

	if (postgres_is_startup(addr, bytes)) {
		thread->phase = PHASE_STARTUP;
		return true;
	}
	bpf_loop(POSTGRES_MAX_WALK, postgres_skim, &skim, 0);
	if (skim.left) {
		if (thread->phase == PHASE_UNKNOWN)
			count_loss(cpu, QJ_LOSS_FRAMING);
		thread->phase = PHASE_LOST;
		return false;
	}
	if (skim.first != 'Q' && skim.first != 'P' && skim.first != 'B')
		return false;
	thread->phase = PHASE_READY;
	return true;
}

struct postgres_walk {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	__u64 addr;
	__u64 now;
	__u32 left;
	__u8 fresh; /* no message of this read has begun a query yet */
};

/* True if the server skips this message: after an error, up to a Sync. */
static __always_inline bool postgres_is_skipped(struct thread_state *thread, __u8 type)
{
	if (type == 'S') {
		thread->postgres.skips = 0;
		return false;
	}
	if (thread->postgres.skips == POSTGRES_SKIPS)
		return true;
	if (type == 'E')
		thread->postgres.skips = POSTGRES_SKIPS;
	return false;
}

/* True if the Query at `addr`, a read's first message or a later one, is START_REPLICATION. */
static __always_inline bool postgres_asks_stream(const struct thread_state *thread, __u64 addr)
{
	const struct postgres_start *start = &thread->postgres.start;

	if (addr == start->addr + POSTGRES_HEADER && start->size > POSTGRES_HEADER + 5 &&
	    start->bytes[POSTGRES_HEADER + 5] != '_')
		return false;
	return postgres_streams(addr);
}

/* Handles a message; this read contains `here` bytes of its body, from walk->addr on. */
static __always_inline void postgres_dispatch(struct postgres_walk *walk, __u8 type, __u32 here)
{
	struct thread_state *thread = walk->thread;

	if (postgres_begin(walk->cpu, thread, walk->now, type, walk->fresh))
		walk->fresh = 0;
	if (thread->postgres.skips && postgres_is_skipped(thread, type))
		return;
	/* A Query or a Sync may have come earlier in this read: this request has not ended. */
	if (type == 'P' || type == 'B' || type == 'E' || type == 'D' || type == 'C')
		thread->postgres.synced = 0;
	if (type == 'Q' && here > 8 && postgres_asks_stream(thread, walk->addr)) {
		postgres_stream_begin(walk->cpu, thread, walk->now);
		return;
	}
	if (here < thread->need && here < postgres_wanted(type)) {
		thread->postgres.collects = 1;
		thread->postgres.collected = 0;
		return;
	}
	postgres_content(walk->cpu, thread, walk->addr, type, here);
	label_query(walk->cpu, thread);
}

static __always_inline void postgres_read_start(struct postgres_start *start, __u64 addr,
						__u32 bytes)
{
	__u64 size = at_most(bytes, POSTGRES_START_BYTES);

	start->addr = addr;
	start->size = bpf_probe_read_user(start->bytes, size, (const void *)addr) ? 0 : size;
}

static __always_inline void postgres_header(struct thread_state *thread, __u64 addr)
{
	const struct postgres_start *start = &thread->postgres.start;
	__u64 into = addr - start->addr;

	if (into < start->size && into + POSTGRES_HEADER <= start->size)
		__builtin_memcpy(thread->head,
				 start->bytes +
				     at_most(into, POSTGRES_START_BYTES - POSTGRES_HEADER),
				 POSTGRES_HEADER);
	else
		bpf_probe_read_user(thread->head, POSTGRES_HEADER, (const void *)addr);
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
		postgres_header(thread, walk->addr);
	}
	walk->addr += take;
	walk->left -= take;
	thread->head_bytes = have + take;
	return thread->head_bytes >= size;
}

/* Handles one message of a read, or the part of it in this read. */
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
			if (!postgres_startup(walk->cpu, thread, walk->addr,
					      whole ? POSTGRES_STARTUP + walk->left : 0, walk->now))
				walk->left = 0;
		} else {
			length = postgres_uint(&thread->head[1]);
			if (!postgres_plausible(thread->head[0], length)) {
				postgres_lost(walk->cpu, thread, walk->now);
				walk->left = 0;
				return 1;
			}
			thread->need = thread->postgres.body_bytes = length - 4;
			here = thread->need < walk->left ? thread->need : walk->left;
			if (!whole) {
				thread->postgres.read.from = walk->addr + thread->need;
				thread->postgres.read.type = thread->head[0];
			}
			postgres_dispatch(walk, thread->head[0], here);
		}
	}
	/* From here, or for a message that began in an earlier read. */
	here = thread->need < walk->left ? thread->need : walk->left;
	thread->need -= here;
	if (thread->postgres.collects)
		postgres_collect(walk->cpu, thread, walk->addr, here);
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
	thread->postgres.read.from = thread->head_bytes ? 0 : addr + thread->need;
	thread->postgres.read.to = addr + bytes;
	thread->postgres.read.type = thread->need ? thread->head[0] : 0;
	thread->postgres.start.size = 0;
	if (!thread->need)
		postgres_read_start(&thread->postgres.start, addr, bytes);
	bpf_loop(POSTGRES_MAX_WALK, postgres_message, &walk, 0);
	if (walk.left)
		postgres_lost(cpu, thread, now);
}

/* Nothing to read: the request was answered, if the client has ended it. */
static __always_inline void postgres_wait(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 now)
{
	if (!thread->begin_ns || !thread->postgres.synced || thread->need || thread->head_bytes)
		return;
	if (thread->postgres.may_continue)
		reply_sent(cpu, thread, now);
	else
		postgres_end(cpu, thread, now);
}

#endif
