/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A statement's shape: hashed without its literals as its bytes arrive from the server's memory;
 * its text is sent once per shape.
 */
#ifndef QJOULE_STATEMENT_BPF_H
#define QJOULE_STATEMENT_BPF_H

#include "query.bpf.h"
#include "tags.bpf.h"

#define STATEMENT_CHUNKS (QJ_TEXT_BYTES / QJ_SHAPE_CHUNK + 2)

struct seen_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* shape */
	__type(value, __u8);
};
extern struct seen_map seen SEC(".maps");

/*
 * Uses a copy as key: in functions that are verified once, Linux 6.1 takes no key from an
 * argument's memory.
 */
static __always_inline bool was_seen(__u64 shape)
{
	return bpf_map_lookup_elem(&seen, &shape);
}

static __always_inline void set_seen(__u64 shape)
{
	static const __u8 yes = 1;

	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
}

struct prepared_key {
	__u64 session;
	__u64 statement; /* the server's number for it, or a hash of its name */
};

struct prepared_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct prepared_key);
	__type(value, struct prepared_statement);
};
extern struct prepared_map prepared SEC(".maps");

/* Two consecutive names. */
struct statement_names {
	__u64 hash[2];
	__u32 bytes[2]; /* each with its NUL; 0: the name's end is not known */
};

/* Sends a statement's text. Returns true on success. */
static __always_inline bool emit_text(struct qj_cpu_state *cpu, struct thread_state *thread,
				      __u8 dialect, __u32 bytes)
{
	struct qj_ring_text *r = reserve(sizeof(*r));

	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return false;
	}
	bytes = at_most(bytes, QJ_TEXT_BYTES);
	if (read_text(thread, r->bytes, bytes, thread->text_addr)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(cpu, QJ_LOSS_TEXT);
		return false;
	}
	fill_text(r, thread->shape, bytes, thread->statement_bytes, thread->server, dialect);
	r->text.rules = thread->text.rules;
	submit(r);
	/* Set only after sending: a lost text is sent again with the next execution. */
	set_seen(thread->shape);
	return true;
}

/* In statement.bpf.c, so that the verifier checks each once. These return 0: */
extern int feed_shape(struct qj_shape_state *state, struct shape_chunk *chunk, __u32 bytes);
#ifdef QJ_EARLY
/* statement_piece() of the current thread. */
extern QJ_VISIBLE int current_piece(__u64 addr, __u32 left, __u32 string);
#endif
extern int prepared_learn(struct thread_state *thread, __u64 statement);
extern int prepared_recall(struct thread_state *thread, __u64 statement);
/*
 * Gives an execution with unknown text its own shape: one per session and statement, or per reason;
 * see struct qj_unseen.
 */
extern int statement_unseen(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 session,
			    __u64 statement);
extern int statement_names(struct thread_state *thread, __u64 addr, __u32 limit,
			   struct statement_names *names);
/* Likewise, from `room` bytes that have been read. */
extern int statement_names_in(const struct shape_chunk *start, __u32 room,
			      struct statement_names *names);
/* Returns a number of bytes. */
extern int statement_name(struct thread_state *thread, __u64 addr, __u32 limit, __u64 *hash);

/* The shape of a statement whose text is unknown. */
static __always_inline __u64 unseen_shape(__u64 session, __u64 statement)
{
	return session_of(session_of(statement) ^ session) ?: 1;
}

struct statement_walk {
	struct thread_state *thread;
	__u64 addr;
	__u32 left;
	__u32 taken;
	__u8 string; /* the text ends at a NUL byte */
	__u8 ended;
};

#define PIECE_ENDS 0x10000 /* the text's NUL byte follows */

/*
 * Hashes the thread's next bytes, at most `left`; `string`: up to a NUL byte. Returns their number,
 * with PIECE_ENDS, or a negative number if they cannot be read.
 */
static __always_inline long statement_piece(struct thread_state *thread, __u64 addr, __u32 left,
					    bool string)
{
	__u64 bytes, ends = 0;

	if (string) {
		/* The helper counts the NUL that it appends. */
		__u64 room = at_most((__u64)left + 1, QJ_SHAPE_CHUNK);
		long got = read_text_str(thread, thread->chunk.bytes, room, addr);

		if (got <= 0)
			return -1;
		ends = (__u64)got < room ? PIECE_ENDS : 0;
		bytes = at_most(got - 1, QJ_SHAPE_CHUNK - 1);
	} else {
		bytes = at_most(left, QJ_SHAPE_CHUNK);
		if (read_text(thread, thread->chunk.bytes, bytes, addr))
			return -1;
	}
	if (bytes)
		feed_shape(&thread->text, &thread->chunk, bytes);
	return bytes | ends;
}

static long statement_chunk(__u32 i, struct statement_walk *walk)
{
	long piece;
	__u32 bytes;

	if (!walk->left)
		return 1;
#ifdef QJ_EARLY
	piece = current_piece(walk->addr, walk->left, walk->string);
#else
	piece = statement_piece(walk->thread, walk->addr, walk->left, walk->string);
#endif
	if (piece < 0)
		return 1;
	bytes = piece & (PIECE_ENDS - 1);
	walk->addr += bytes;
	walk->left -= bytes;
	walk->taken += bytes;
	walk->ended = !!(piece & PIECE_ENDS);
	return walk->ended;
}

/* `rules`: the session's known settings (shape_hash.h). */
static __always_inline void statement_begin(struct thread_state *thread, __u8 dialect, __u8 rules,
					    __u64 addr, __u32 bytes)
{
	qj_shape_begin(&thread->text, plan.seed, dialect, rules);
	thread->statement_bytes = bytes;
	thread->text_addr = addr;
	thread->text_left = bytes;
	if (bytes > QJ_TEXT_BYTES) {
		thread->text_left = QJ_TEXT_BYTES;
		thread->flags |= QJ_QUERY_TRUNCATED;
	}
}

/*
 * Sets the shape of a complete statement and sends its text if it is new. `find_rules`, if any, is
 * called before sending, for a statement that was hashed before its session's rules were known.
 */
static __always_inline void statement_shaped(struct qj_cpu_state *cpu, struct thread_state *thread,
					     __u8 dialect, __u32 text_bytes,
					     void (*find_rules)(struct thread_state *))
{
	thread->text_left = 0;
	thread->text.truncated = (thread->flags & QJ_QUERY_TRUNCATED) != 0;
	thread->shape = qj_shape_end(&thread->text);
	/* Most clients repeat their last statement: it needs no lookup. */
	if (thread->text_sent == thread->shape)
		return;
	if (!was_seen(thread->shape)) {
		if (find_rules)
			find_rules(thread);
		if (!emit_text(cpu, thread, dialect, text_bytes))
			return;
	}
	thread->text_sent = thread->shape;
}

/* Sets the query's tags, which its procedures inherit. Attributes win over a comment. */
static __always_inline void statement_tags(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u32 text_bytes)
{
	if (plan.tags && !thread->tags && !thread->caller.query)
		tags_of_comment(cpu, thread, text_bytes);
}

static __always_inline void statement_done(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u8 dialect, __u32 text_bytes,
					   void (*find_rules)(struct thread_state *))
{
	statement_shaped(cpu, thread, dialect, text_bytes, find_rules);
	statement_tags(cpu, thread, text_bytes);
}

/*
 * Feeds the next bytes of a statement of known length, of which `chunk` already has the first
 * `read`. Returns true once the statement is complete. `find_rules`: see statement_shaped().
 */
static __always_inline bool statement_feed_from(struct qj_cpu_state *cpu,
						struct thread_state *thread,
						struct shape_chunk *chunk, __u32 read, __u64 addr,
						__u32 bytes,
						void (*find_rules)(struct thread_state *))
{
	__u32 whole = bytes < thread->text_left ? bytes : thread->text_left;
	struct statement_walk walk = {.thread = thread};

	walk.taken = read < whole ? read : whole;
	walk.addr = addr + walk.taken;
	walk.left = whole - walk.taken;
	if (walk.taken)
		feed_shape(&thread->text, chunk, walk.taken);
	if (walk.left)
		bpf_loop(STATEMENT_CHUNKS, statement_chunk, &walk, 0);
	if (walk.taken != whole) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->text_left = 0;
		thread->shape = 0;
		thread->flags |= QJ_QUERY_NO_TEXT;
		return true;
	}
	thread->text_left -= whole;
	if (thread->text_left)
		return false;
	statement_done(cpu, thread, thread->text.dialect,
		       thread->statement_bytes < QJ_TEXT_BYTES ? thread->statement_bytes
							       : QJ_TEXT_BYTES,
		       find_rules);
	return true;
}

static __always_inline bool statement_feed(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes)
{
	return statement_feed_from(cpu, thread, 0, 0, addr, bytes, 0);
}

#endif
