/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A statement in PostgreSQL's form: a text that ends at a NUL byte. */
#ifndef QJOULE_POSTGRES_TEXT_BPF_H
#define QJOULE_POSTGRES_TEXT_BPF_H

#include "core/statement.bpf.h"
#include "state.bpf.h"

/* Sets why the thread's statement has no text; on sockets the reason determines its shape. */
static __always_inline void postgres_no_text(struct thread_state *thread, enum qj_no_text why)
{
	thread->postgres.unknown = 0;
	thread->shape = thread->attach_mode == QJ_ATTACH_SOCKET ? unseen_shape(0, why) : 0;
	thread->flags &= ~QJ_STATEMENT_FLAGS;
	thread->flags |= QJ_QUERY_NO_TEXT | (__u32)why << QJ_NO_TEXT_SHIFT;
}

/* The index of the first byte whose bit HAS_ZERO has set. */
#define FIRST_BYTE(bits) ((((bits) & -(bits)) >> 7) * 0x0001020304050607ULL >> 56)

/* Returns how many of the thread's first `bytes` bytes come before a NUL byte. */
static __always_inline __u32 postgres_before_nul(const struct thread_state *thread, __u32 bytes)
{
	const __u64 *words = (const __u64 *)thread->chunk.bytes;

	for (__u32 i = 0; i < QJ_SHAPE_CHUNK / sizeof(*words); i++) {
		__u64 nul = HAS_ZERO(words[i]);

		if (nul) {
			__u32 before = i * sizeof(*words) + FIRST_BYTE(nul);

			return before < bytes ? before : bytes;
		}
	}
	return bytes;
}

/*
 * Copies the first bytes of a statement at `addr`, at most `limit`, from the stored beginning of
 * its read to the thread's chunk. Returns as statement_piece(), without hashing; 0: not stored.
 */
static __always_inline __u32 postgres_first_piece(struct thread_state *thread, __u64 addr,
						  __u32 limit)
{
	const struct postgres_start *start = &thread->postgres.start;
	__u64 into = addr - start->addr, size = start->size;
	__u32 bytes, length;

	if (into >= size || thread->collected)
		return 0;
	into = at_most(into, POSTGRES_START_BYTES - 1);
	/* Bytes after the start's end are not used. */
	bpf_probe_read_kernel(thread->chunk.bytes, QJ_SHAPE_CHUNK, start->bytes + into);
	bytes = size - into < QJ_SHAPE_CHUNK ? size - into : QJ_SHAPE_CHUNK;
	bytes = bytes < limit ? bytes : limit;
	length = postgres_before_nul(thread, bytes);
	return length | (length < bytes ? PIECE_ENDS : 0);
}

/*
 * After the first reply to a COPY the client sends data, and the query continues. SET, RESET and
 * DISCARD may change the application's name. `known`: number of bytes in the thread's chunk.
 */
static __always_inline void postgres_first_word(struct thread_state *thread, __u64 addr,
						__u32 known)
{
	__u32 word = 0;

	if (known >= sizeof(word))
		word = *(const __u32 *)thread->chunk.bytes;
	else
		read_text(thread, &word, sizeof(word), addr);
	word |= 0x20202020;
	thread->postgres.may_continue = word == 0x79706f63;		  /* copy */
	thread->postgres.sets = (word & 0xffffff) == 0x746573 ||	  /* set */
				word == 0x65736572 || word == 0x63736964; /* rese, disc */
}

/*
 * Returns the session's rules for strings. The server keeps the parameter
 * standard_conforming_strings in a global variable. On sockets the text is in the client's
 * character set, whose second bytes may be backslashes; elsewhere in the server's, which has no
 * such bytes.
 */
static __always_inline __u8 postgres_rules(const struct thread_state *thread)
{
	__u8 safe = thread->attach_mode == QJ_ATTACH_SYMBOL ? QJ_SHAPE_BACKSLASH_SAFE : 0,
	     conforms = 0;

	if (postgres_variable(&conforms, sizeof(conforms),
			      facts_of(thread)[QJ_POSTGRES_CONFORMING]))
		return safe + QJ_SHAPE_BACKSLASH_UNKNOWN;
	return safe + (conforms ? QJ_SHAPE_BACKSLASH_PLAIN : QJ_SHAPE_BACKSLASH_ESCAPES);
}

/* True if the text continues after the bytes that were taken. */
static __always_inline bool postgres_goes_on(const struct statement_walk *walk)
{
	__u8 next = 1;

	read_text(walk->thread, &next, sizeof(next), walk->addr);
	return next;
}

/* postgres_text() without the tags in comments. */
static __always_inline bool postgres_shape(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes, __u32 whole, __u8 rules)
{
	struct statement_walk walk = {
	    .thread = thread,
	    .addr = addr,
	    .left = bytes < QJ_TEXT_BYTES ? bytes : QJ_TEXT_BYTES,
	    .string = 1,
	};

	__u32 piece = postgres_first_piece(thread, addr, walk.left);

	thread->tags = 0;
	statement_begin(thread, QJ_DIALECT_POSTGRES, rules, addr, 0);
	thread->flags &= ~QJ_STATEMENT_FLAGS;
	walk.taken = piece & (PIECE_ENDS - 1);
	postgres_first_word(thread, addr, walk.taken);
	if (walk.taken)
		feed_shape(&thread->text, &thread->chunk, walk.taken);
	walk.addr += walk.taken;
	walk.left -= walk.taken;
	walk.ended = !!(piece & PIECE_ENDS);
	if (!walk.ended)
		bpf_loop(STATEMENT_CHUNKS + 1, statement_chunk, &walk, 0);
	thread->statement_bytes = walk.taken;
	if (!walk.ended) {
		/* Cut off: the available part could be mistaken for another statement. */
		if (walk.taken < QJ_TEXT_BYTES) {
			count_loss(cpu, QJ_LOSS_TEXT);
			postgres_no_text(thread, QJ_NO_TEXT_MESSAGE);
			return false;
		}
		if (postgres_goes_on(&walk)) {
			thread->flags |= QJ_QUERY_TRUNCATED;
			thread->statement_bytes = whole > walk.taken ? whole : walk.taken + 1;
		}
	}
	statement_shaped(cpu, thread, QJ_DIALECT_POSTGRES, walk.taken, 0);
	return true;
}

/*
 * Reads the statement at `addr`, of which at most `bytes` are there. `whole`: its length if it is
 * longer; 0: not known. Returns true once the needed part has arrived.
 */
static __always_inline bool postgres_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 addr, __u32 bytes, __u32 whole, __u8 rules)
{
	__u32 read;

	if (!postgres_shape(cpu, thread, addr, bytes, whole, rules))
		return false;
	read = thread->statement_bytes;
	statement_tags(cpu, thread, read < QJ_TEXT_BYTES ? read : QJ_TEXT_BYTES);
	return true;
}

#endif
