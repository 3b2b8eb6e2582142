/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A statement in PostgreSQL's form: a text that ends at a NUL byte. */
#ifndef QJOULE_POSTGRES_TEXT_BPF_H
#define QJOULE_POSTGRES_TEXT_BPF_H

#include "core/statement.bpf.h"
#include "data.bpf.h"

/*
 * After the first reply to a COPY the client sends data, and the query continues. SET, RESET and
 * DISCARD may change the application's name.
 */
static __always_inline void postgres_first_word(struct thread_state *thread, __u64 addr)
{
	__u32 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (const void *)addr);
	word |= 0x20202020;
	thread->postgres.may_continue = word == 0x79706f63;		  /* copy */
	thread->postgres.sets = (word & 0xffffff) == 0x746573 ||	  /* set */
				word == 0x65736572 || word == 0x63736964; /* rese, disc */
}

/*
 * The session's rules for strings. The server keeps the parameter standard_conforming_strings in a
 * global variable. On sockets the text is in the client's character set, whose second bytes may be
 * backslashes; elsewhere it is in the server's, where none is.
 */
static __always_inline __u8 postgres_rules(const struct thread_state *thread)
{
	__u8 safe = thread->rung == QJ_RUNG_SYMBOL ? QJ_SHAPE_BACKSLASH_SAFE : 0, conforms = 0;

	if (postgres_variable(&conforms, sizeof(conforms),
			      facts_of(thread)[QJ_POSTGRES_CONFORMING]))
		return safe + QJ_SHAPE_BACKSLASH_UNKNOWN;
	return safe + (conforms ? QJ_SHAPE_BACKSLASH_PLAIN : QJ_SHAPE_BACKSLASH_ESCAPES);
}

/* As postgres_text(), without the tags in comments. */
static __always_inline __u32 postgres_shape(struct qj_cpu_state *cpu, struct thread_state *thread,
					    __u64 addr, __u32 bytes, __u8 rules)
{
	struct statement_walk walk = {
	    .thread = thread,
	    .addr = addr,
	    .left = bytes < QJ_TEXT_BYTES ? bytes : QJ_TEXT_BYTES,
	    .string = 1,
	};

	thread->tags = 0;
	statement_begin(thread, QJ_DIALECT_POSTGRES, rules, addr, 0);
	postgres_first_word(thread, addr);
	bpf_loop(STATEMENT_CHUNKS + 1, statement_chunk, &walk, 0);
	if (!walk.ended) {
		/* Cut off: the part that is there could be mistaken for another statement. */
		if (!walk.taken || bytes < QJ_TEXT_BYTES) {
			count_loss(cpu, QJ_LOSS_TEXT);
			thread->shape = 0;
			thread->flags |= QJ_QUERY_NO_TEXT;
			return 0;
		}
		thread->flags |= QJ_QUERY_TRUNCATED;
	}
	thread->statement_bytes = walk.taken;
	statement_shaped(cpu, thread, QJ_DIALECT_POSTGRES, walk.taken);
	return walk.taken;
}

/* Returns the statement's length; at most `bytes` are readable. 0: not all of it has arrived. */
static __always_inline __u32 postgres_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes, __u8 rules)
{
	__u32 taken = postgres_shape(cpu, thread, addr, bytes, rules);

	if (taken)
		statement_tags(cpu, thread, taken);
	return taken;
}

#endif
