/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The shape of a key-value command as a keyed 64-bit hash of its name and the pattern of its first
 * argument, which is a key in most commands. Numbers, identifiers and hexadecimal strings in the
 * key become one mark each. qjoule.shapes.keys makes the same pattern as text: equal hashes imply
 * equal patterns, up to chance. Works inside BPF programs and on the host, as shape_hash.h does.
 *
 * Words in a pattern are runs of letters, digits, control characters and bytes from 0x80 on:
 *
 * - A word becomes a mark if a digit stands before a letter, if it contains bytes that are neither,
 *   or if it is hexadecimal and either long or joined by "-" to a mark before it.
 * - A word of letters followed by digits becomes the letters and a mark.
 * - A word of letters only stays as it is.
 *
 * Two marks joined by "-" become one mark, so a UUID is one mark.
 */
#ifndef QJ_KEY_SHAPE_H
#define QJ_KEY_SHAPE_H

#include "core/shape_hash.h"

#define QJ_KEY_NAME_BYTES 32	/* bytes of a command's name that are read */
#define QJ_KEY_BYTES	  64	/* bytes of its first argument that are read */
#define QJ_KEY_HEX_MIN	  8	/* a hexadecimal word of this many digits is an identifier */
#define QJ_KEY_MARK	  0x100 /* symbols above the 256 byte values */
#define QJ_KEY_ARG	  0x101 /* an argument follows */
#define QJ_KEY_CUT	  0x102 /* the argument continues beyond what was read */
#define QJ_KEY_NEXT	  0x103 /* another command of the pipeline follows */

enum qj_key_word {
	QJ_KEY_DIGIT = 1,  /* the word has a digit */
	QJ_KEY_MIXED = 2,  /* a letter after a digit, or a byte that is neither */
	QJ_KEY_NO_HEX = 4, /* a byte that is no hexadecimal digit */
};

struct qj_key_pattern {
	__u64 key;    /* odd */
	__u64 hash;   /* includes the current word as it stands */
	__u64 before; /* without the current word */
	__u64 stem;   /* includes the letters before its first digit */
	__u64 marked; /* as it was after the last mark */
	__u32 length; /* bytes of the current word */
	__u8 word;    /* enum qj_key_word */
	__u8 joined;  /* a mark and "-" precede the word */
	__u8 mark;    /* the pattern ends with a mark so far */
	__u8 reserved;
};

static __always_inline __u64 qj_key_seeded(__u64 seed)
{
	return qj_shape_mix(seed + 0x9e3779b97f4a7c15ULL) | 1;
}

/* Ends a word: decides what it becomes. */
static __always_inline void qj_key_word_end(struct qj_key_pattern *p)
{
	int hex, whole;

	if (!p->length)
		return;
	hex = !(p->word & QJ_KEY_NO_HEX) && (p->length >= QJ_KEY_HEX_MIN || p->joined);
	whole =
	    hex || (p->word & QJ_KEY_MIXED) || ((p->word & QJ_KEY_DIGIT) && p->stem == p->before);
	p->mark = whole || (p->word & QJ_KEY_DIGIT);
	if (whole && p->joined)
		p->hash = p->marked;
	else if (p->mark)
		p->hash = qj_shape_step(whole ? p->before : p->stem, QJ_KEY_MARK, p->key);
	if (p->mark)
		p->marked = p->hash;
	p->length = 0;
	p->word = 0;
	p->joined = 0;
}

static __always_inline void qj_key_word_byte(struct qj_key_pattern *p, __u8 byte, int letter,
					     int digit)
{
	__u8 low = byte | 0x20;

	if (!p->length)
		p->before = p->stem = p->hash;
	if (digit) {
		if (!(p->word & QJ_KEY_DIGIT))
			p->stem = p->hash;
		p->word |= QJ_KEY_DIGIT;
	} else if (!letter || (p->word & QJ_KEY_DIGIT)) {
		p->word |= QJ_KEY_MIXED;
	}
	if (!digit && !(letter && low <= 'f'))
		p->word |= QJ_KEY_NO_HEX;
	p->length++;
	p->hash = qj_shape_step(p->hash, byte, p->key);
}

static __always_inline void qj_key_byte(struct qj_key_pattern *p, __u8 byte)
{
	__u8 low = byte | 0x20;
	int letter = byte < 0x80 && low >= 'a' && low <= 'z';
	int digit = byte >= '0' && byte <= '9';

	if (letter || digit || byte < 0x20 || byte >= 0x7f) {
		qj_key_word_byte(p, byte, letter, digit);
		return;
	}
	qj_key_word_end(p);
	p->joined = p->mark && byte == '-';
	p->mark = 0;
	p->hash = qj_shape_step(p->hash, byte, p->key);
}

static __always_inline void qj_key_pattern_begin(struct qj_key_pattern *p, __u64 hash, __u64 key)
{
	p->key = key;
	p->hash = p->before = p->stem = p->marked = hash;
	p->length = 0;
	p->word = 0;
	p->joined = 0;
	p->mark = 0;
	p->reserved = 0;
}

/* `bytes`: how much of the argument was read. */
static __always_inline __u64 qj_key_pattern_end(struct qj_key_pattern *p, __u32 bytes)
{
	qj_key_word_end(p);
	return bytes < QJ_KEY_BYTES ? p->hash : qj_shape_step(p->hash, QJ_KEY_CUT, p->key);
}

/* Names are hashed without regard to case. */
static __always_inline __u64 qj_key_name_byte(__u64 hash, __u8 byte, __u64 key)
{
	return qj_shape_step(hash, byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte, key);
}

/* Never 0 (unknown text) and never ~0 (the `other` row). */
static __always_inline __u64 qj_key_end(__u64 hash)
{
	hash = qj_shape_mix(hash);
	return hash + 1 < 2 ? 1 : hash;
}

#endif /* QJ_KEY_SHAPE_H */
