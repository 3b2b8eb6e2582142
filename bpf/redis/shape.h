/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The shape of a Redis command as a keyed 64-bit hash: its name, and the pattern of its first
 * argument, which for most commands is a key. Numbers, identifiers and hexadecimal strings in it
 * are one mark each. qjoule.servers.redis.dialect makes the same pattern as text; equal hashes imply equal
 * patterns, up to chance. Works inside BPF programs and on the host, as shape_hash.h does.
 *
 * A pattern's words are runs of letters, digits, control characters and bytes from 0x80 on. A word
 *is a mark		if a digit stands before a letter, if it has bytes that are neither, or if
 *it is hexadecimal and either long or joined by "-" to a mark before; letters, mark	if it is
 *letters and then digits; itself		if it is letters only. A mark that is joined by "-"
 *to a mark is one with it: a UUID is one mark.
 */
#ifndef QJ_REDIS_SHAPE_H
#define QJ_REDIS_SHAPE_H

#include "core/shape_hash.h"

#define QJ_REDIS_NAME	 32    /* bytes of a command's name that are looked at */
#define QJ_REDIS_KEY	 64    /* bytes of its first argument */
#define QJ_REDIS_HEX_MIN 8     /* a word of so many hexadecimal digits is an identifier */
#define QJ_REDIS_MARK	 0x100 /* symbols beside the 256 bytes */
#define QJ_REDIS_ARG	 0x101 /* an argument follows */
#define QJ_REDIS_CUT	 0x102 /* the argument goes on */
#define QJ_REDIS_NEXT	 0x103 /* another command of the pipeline follows */

enum qj_redis_word {
	QJ_REDIS_DIGIT = 1,  /* the word has a digit */
	QJ_REDIS_MIXED = 2,  /* a letter after a digit, or a byte that is neither */
	QJ_REDIS_NO_HEX = 4, /* a byte that is no hexadecimal digit */
};

struct qj_redis_pattern {
	__u64 key;    /* odd */
	__u64 hash;   /* with the word so far as it stands */
	__u64 before; /* without the word */
	__u64 stem;   /* with the letters before its first digit */
	__u64 marked; /* as it was behind the last mark */
	__u32 length; /* of the word */
	__u8 word;    /* enum qj_redis_word */
	__u8 joined;  /* a mark and "-" stand before the word */
	__u8 mark;    /* a mark is the last thing */
	__u8 reserved;
};

static __always_inline __u64 qj_redis_key(__u64 seed)
{
	return qj_shape_mix(seed + 0x9e3779b97f4a7c15ULL) | 1;
}

/* The word ends: decides what it was. */
static __always_inline void qj_redis_word_end(struct qj_redis_pattern *p)
{
	int hex, whole;

	if (!p->length)
		return;
	hex = !(p->word & QJ_REDIS_NO_HEX) && (p->length >= QJ_REDIS_HEX_MIN || p->joined);
	whole = hex || (p->word & QJ_REDIS_MIXED) ||
		((p->word & QJ_REDIS_DIGIT) && p->stem == p->before);
	p->mark = whole || (p->word & QJ_REDIS_DIGIT);
	if (whole && p->joined)
		p->hash = p->marked;
	else if (p->mark)
		p->hash = qj_shape_step(whole ? p->before : p->stem, QJ_REDIS_MARK, p->key);
	if (p->mark)
		p->marked = p->hash;
	p->length = 0;
	p->word = 0;
	p->joined = 0;
}

static __always_inline void qj_redis_word_byte(struct qj_redis_pattern *p, __u8 byte, int letter,
					       int digit)
{
	__u8 low = byte | 0x20;

	if (!p->length)
		p->before = p->stem = p->hash;
	if (digit) {
		if (!(p->word & QJ_REDIS_DIGIT))
			p->stem = p->hash;
		p->word |= QJ_REDIS_DIGIT;
	} else if (!letter || (p->word & QJ_REDIS_DIGIT)) {
		p->word |= QJ_REDIS_MIXED;
	}
	if (!digit && !(letter && low <= 'f'))
		p->word |= QJ_REDIS_NO_HEX;
	p->length++;
	p->hash = qj_shape_step(p->hash, byte, p->key);
}

static __always_inline void qj_redis_byte(struct qj_redis_pattern *p, __u8 byte)
{
	__u8 low = byte | 0x20;
	int letter = byte < 0x80 && low >= 'a' && low <= 'z';
	int digit = byte >= '0' && byte <= '9';

	if (letter || digit || byte < 0x20 || byte >= 0x7f) {
		qj_redis_word_byte(p, byte, letter, digit);
		return;
	}
	qj_redis_word_end(p);
	p->joined = p->mark && byte == '-';
	p->mark = 0;
	p->hash = qj_shape_step(p->hash, byte, p->key);
}

static __always_inline void qj_redis_pattern_begin(struct qj_redis_pattern *p, __u64 hash,
						   __u64 key)
{
	p->key = key;
	p->hash = p->before = p->stem = p->marked = hash;
	p->length = 0;
	p->word = 0;
	p->joined = 0;
	p->mark = 0;
	p->reserved = 0;
}

/* `bytes`: how long the argument is, as far as it was looked at. */
static __always_inline __u64 qj_redis_pattern_end(struct qj_redis_pattern *p, __u32 bytes)
{
	qj_redis_word_end(p);
	return bytes < QJ_REDIS_KEY ? p->hash : qj_shape_step(p->hash, QJ_REDIS_CUT, p->key);
}

/* Names are the same in upper and lower case. */
static __always_inline __u64 qj_redis_name_byte(__u64 hash, __u8 byte, __u64 key)
{
	return qj_shape_step(hash, byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte, key);
}

/* Never 0 (unknown text) and never ~0 (the `other` row). */
static __always_inline __u64 qj_redis_end(__u64 hash)
{
	hash = qj_shape_mix(hash);
	return hash + 1 < 2 ? 1 : hash;
}

#endif /* QJ_REDIS_SHAPE_H */
