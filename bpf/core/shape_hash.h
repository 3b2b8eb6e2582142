/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A statement's shape as a keyed 64-bit hash that skips literals and comments.
 *
 * The statement runs through a lexical automaton, and the automaton's output is hashed. Its tables
 * (shape_tables.h) come from the same definition as the Python normaliser qjoule.shapes. Each byte
 * costs three table loads and one multiplication, with no branch on the data but for names that
 * begin with digits. The result does not
 * depend on how the statement is split into chunks. Equal hashes imply equal shapes (up to chance,
 * 2^-64): the normaliser computes shapes from the automaton's output alone.
 *
 * Clients choose the text, so the hash is keyed: both the start and the multiplier derive from a
 * secret seed. It resists accidental and blind collisions; it is no cryptographic code.
 *
 * Works inside BPF programs (include vmlinux.h and bpf_helpers.h first) and on the host:
 *
 *     qj_shape_begin(&s, seed, QJ_DIALECT_..., rules);
 *     for each chunk: qj_shape_feed(&s, chunk, bytes);
 *     s.truncated = statement_bytes > bytes_fed;
 *     shape = qj_shape_end(&s);
 */
#ifndef QJ_SHAPE_HASH_H
#define QJ_SHAPE_HASH_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#include "shape_tables.h"

#define QJ_SHAPE_CHUNK	 64
#define QJ_SHAPE_STATE	 0x1fc0 /* bits of an entry: the next state */
#define QJ_SHAPE_SYMBOL	 0xe03f /* the other bits: what is emitted */
#define QJ_SHAPE_DIALECT 0x2000 /* the second half of the table */
#define QJ_SHAPE_STATES	 128
/* The dialect of the table's first half; the second half serves all other dialects. */
#define QJ_SHAPE_FIRST	     1
#define QJ_SHAPE_STATE_SHIFT 6
#define QJ_SHAPE_BYTE_SHIFT  14
#define QJ_SHAPE_EMIT_SHIFT  15

/*
 * Added to the number of the rules: the session is known to have no other setting that changes how
 * a statement's words are read. Hashes do not depend on it.
 */
#define QJ_SHAPE_PLAIN_MODES 0x40

struct qj_shape_state {
	__u64 hash;
	__u64 key;    /* odd */
	__u64 recent; /* the last eight bytes; the lowest is the last */
	__u16 entry;  /* last transition */
	__u8 dialect; /* enum qj_dialect */
	__u8 rules;   /* of the session: qjoule.shapes.rules; 0: none is known */
	__u8
	    truncated; /* set before qj_shape_end if the statement continues after the last chunk */
	__u8 reserved[3];
};
_Static_assert(sizeof(struct qj_shape_state) == 32, "kept in task storage");
_Static_assert(QJ_SHAPE_DIGITS_MAX == sizeof(__u64), "digits of a name are found in `recent`");

/* Stafford's mix 13 (the finaliser of splitmix64): every input bit reaches every output bit. */
static __always_inline __u64 qj_shape_mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline __u64 qj_shape_step(__u64 hash, __u64 symbol, __u64 key)
{
	hash = (hash ^ symbol) * key;
	return hash ^ (hash >> 32);
}

static __always_inline void qj_shape_begin(struct qj_shape_state *s, __u64 seed, __u8 dialect,
					   __u8 rules)
{
	s->key = qj_shape_mix(seed + 0x9e3779b97f4a7c15ULL) | 1;
	s->hash = qj_shape_mix(seed ^ s->key ^ dialect);
	s->recent = 0;
	s->entry = 0;
	s->dialect = dialect;
	s->rules = rules;
	s->truncated = 0;
}

/* The table of classes for the session's rules. */
static __always_inline const __u8 *qj_shape_classes_of(const struct qj_shape_state *s)
{
	__u32 rules = s->rules;

	if (s->dialect == QJ_SHAPE_FIRST)
		rules &= QJ_SHAPE_RULES_FIRST - 1;
	else
		rules = QJ_SHAPE_RULES_FIRST + (rules & (QJ_SHAPE_RULES_SECOND - 1));
	return qj_shape_classes + rules * 256;
}

/*
 * The digits before a byte, which turned out to begin a name. In each byte of `others` the highest
 * bit says that it is no digit. No loop and no index: early verifiers cannot bound them.
 */
static __always_inline __u64 qj_shape_digits(__u64 recent)
{
	__u64 value = recent ^ 0x3030303030303030ULL;
	__u64 others = ((value & 0x7f7f7f7f7f7f7f7fULL) + 0x7676767676767676ULL) | value;
	__u64 last;

	others &= 0x8080808080808080ULL;
	last = others & -others;
	return recent & ((last >> 7) - 1);
}

/* Feeds the first n bytes of a chunk; n above QJ_SHAPE_CHUNK counts as QJ_SHAPE_CHUNK. */
static __always_inline void qj_shape_feed(struct qj_shape_state *s, const __u8 *chunk, __u32 n)
{
	const __u16 *moves = qj_shape_moves + (s->dialect == QJ_SHAPE_FIRST ? 0 : QJ_SHAPE_DIALECT);
	const __u8 *classes = qj_shape_classes_of(s);
	const __u64 key = s->key;
	__u64 hash = s->hash;
	__u64 recent = s->recent;
	__u64 entry = s->entry;
	__u32 i;

	/* The constant bounds the loop for verifiers that forget what is known of a spilled n. */
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (i = 0; i < QJ_SHAPE_CHUNK && i < n; i++) {
		__u64 byte = chunk[i];
		__u64 emits, moved;

		/*
		 * The two have no bit in common, so an OR would do. A sum and a mask are used
		 * because before Linux 6.10 the verifier cannot bound an OR of two variables.
		 */
		entry = (entry & QJ_SHAPE_STATE) + classes[byte];
		entry = moves[entry & (QJ_SHAPE_DIALECT - 1)];
		if ((entry & QJ_SHAPE_SYMBOL) == QJ_SHAPE_DIGITS_EMISSION)
			hash = qj_shape_step(hash, qj_shape_digits(recent), key);
		recent = recent << 8 | byte;
		emits = 0 - (entry >> QJ_SHAPE_EMIT_SHIFT);
		byte &= 0 - ((entry >> QJ_SHAPE_BYTE_SHIFT) & 1);
		moved = qj_shape_step(hash, (entry & QJ_SHAPE_SYMBOL) << 8 | byte, key);
		hash ^= (hash ^ moved) & emits;
	}
	s->hash = hash;
	s->entry = entry;
	s->recent = recent;
}

/* The hash of all that was fed: never 0 (unknown text) and never ~0 (the `other` row). */
static __always_inline __u64 qj_shape_end(struct qj_shape_state *s)
{
	const __u8 *finals = qj_shape_finals + (s->dialect == QJ_SHAPE_FIRST ? 0 : QJ_SHAPE_STATES);
	__u64 state = (s->entry & QJ_SHAPE_STATE) >> QJ_SHAPE_STATE_SHIFT;
	__u64 last = finals[state] | (s->truncated ? 0x100 : 0);
	__u64 hash = qj_shape_mix(qj_shape_step(s->hash, last, s->key));

	return hash + 1 < 2 ? 1 : hash;
}

#endif /* QJ_SHAPE_HASH_H */
