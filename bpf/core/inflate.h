/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Decompresses LZ4 blocks and Snappy's raw format. Both consist only of copies, either from the
 * input or from earlier output. One loop of bounded steps does the work; invalid input ends it.
 * Sources: lz4 doc/lz4_Block_format.md, google/snappy format_description.txt.
 *
 * Works in BPF programs (include vmlinux.h first) and on the host. The includer must provide
 * at_most() and inflate_copy().
 */
#ifndef QJ_INFLATE_H
#define QJ_INFLATE_H

#include "server_state.h"

#define QJ_INFLATE_STEPS  (4 * QJ_PACKED_MAX)
#define QJ_LZ4_LONGER	  15 /* at this value the following bytes continue the length */
#define QJ_LZ4_MATCH_MIN  4
#define QJ_SNAPPY_LONGER  60
#define QJ_SNAPPY_LENGTHS 5 /* bytes of a length, 7 bits each */

enum inflate_at {
	INFLATE_TOKEN = 0,
	INFLATE_LITERALS_LONGER,
	INFLATE_LITERALS,
	INFLATE_OFFSET,
	INFLATE_MATCH_LONGER,
	INFLATE_MATCH,
	INFLATE_END,
};

/* Provided by the includer: copies bytes that do not overlap; false if they cannot be read. */
static __always_inline bool inflate_copy(__u8 *to, __u64 bytes, const __u8 *from);
/* The caller then calls inflate_step() until it returns 1, at most QJ_INFLATE_STEPS times. */
static __always_inline void inflate_run(struct inflate_buffers *b);

static __always_inline void inflate_begin(struct inflate_buffers *b, __u8 format, __u32 bytes)
{
	b->at = b->done = b->limit = b->literals = b->match = b->offset = 0;
	b->packed_bytes = bytes < QJ_PACKED_MAX ? bytes : QJ_PACKED_MAX;
	b->format = format;
	b->phase = INFLATE_TOKEN;
}

static __always_inline __u32 inflate_byte(struct inflate_buffers *b)
{
	__u32 at = b->at;

	if (at >= b->packed_bytes) {
		b->phase = INFLATE_END;
		return 0;
	}
	b->at = at + 1;
	return b->packed.bytes[at & (QJ_PACKED_MAX - 1)];
}

static __always_inline __u32 inflate_room(const struct inflate_buffers *b, __u32 bytes)
{
	if (bytes > b->limit - b->done)
		bytes = b->limit - b->done;
	return at_most(bytes, QJ_INFLATE_CHUNK);
}

static __always_inline void inflate_literals(struct inflate_buffers *b)
{
	__u64 bytes = b->literals, from, to;

	if (bytes > b->packed_bytes - b->at)
		bytes = b->packed_bytes - b->at;
	bytes = inflate_room(b, bytes);
	from = at_most(b->at, QJ_PACKED_MAX);
	to = at_most(b->done, QJ_INFLATED_MAX);
	bytes = at_most(bytes, QJ_INFLATE_CHUNK);
	if (bytes && !inflate_copy(b->inflated + to, bytes, b->packed.bytes + from))
		b->phase = INFLATE_END;
	b->at += bytes;
	b->done += bytes;
	b->literals -= bytes;
	if (b->at >= b->packed_bytes || b->done >= b->limit)
		b->phase = INFLATE_END;
}

/* A match may overlap its own output. Its bytes then repeat: each step copies twice as many. */
static __always_inline void inflate_match(struct inflate_buffers *b)
{
	__u64 bytes = b->match, from, to;

	if (!b->offset || b->offset > b->done) {
		b->phase = INFLATE_END;
		return;
	}
	if (bytes > b->offset)
		bytes = b->offset;
	bytes = inflate_room(b, bytes);
	from = at_most(b->done - b->offset, QJ_INFLATED_MAX);
	to = at_most(b->done, QJ_INFLATED_MAX);
	bytes = at_most(bytes, QJ_INFLATE_CHUNK);
	if (bytes && !inflate_copy(b->inflated + to, bytes, b->inflated + from))
		b->phase = INFLATE_END;
	if (bytes == b->offset)
		b->offset *= 2;
	b->done += bytes;
	b->match -= bytes;
	if (b->done >= b->limit)
		b->phase = INFLATE_END;
}

static __always_inline void lz4_step(struct inflate_buffers *b)
{
	__u32 byte;

	if (b->phase == INFLATE_TOKEN) {
		byte = inflate_byte(b);
		b->literals = byte >> 4;
		b->match = byte & QJ_LZ4_LONGER;
		if (b->phase == INFLATE_TOKEN)
			b->phase = b->literals == QJ_LZ4_LONGER ? INFLATE_LITERALS_LONGER
								: INFLATE_LITERALS;
	} else if (b->phase == INFLATE_LITERALS_LONGER) {
		byte = inflate_byte(b);
		b->literals += byte;
		if (byte != 0xff && b->phase != INFLATE_END)
			b->phase = INFLATE_LITERALS;
	} else if (b->phase == INFLATE_OFFSET) {
		byte = inflate_byte(b);
		b->offset = byte | inflate_byte(b) << 8;
		if (b->phase == INFLATE_OFFSET)
			b->phase = b->match == QJ_LZ4_LONGER ? INFLATE_MATCH_LONGER : INFLATE_MATCH;
		b->match += QJ_LZ4_MATCH_MIN;
	} else if (b->phase == INFLATE_MATCH_LONGER) {
		byte = inflate_byte(b);
		b->match += byte;
		if (byte != 0xff && b->phase != INFLATE_END)
			b->phase = INFLATE_MATCH;
	}
}

static __always_inline __u32 snappy_number(struct inflate_buffers *b, __u32 bytes)
{
	__u32 number = 0;

	for (__u32 n = 0; n < 4; n++)
		if (n < bytes)
			number |= inflate_byte(b) << 8 * n;
	return number;
}

static __always_inline void snappy_step(struct inflate_buffers *b)
{
	__u32 tag, length, kind;

	if (b->phase != INFLATE_TOKEN)
		return;
	tag = inflate_byte(b);
	kind = tag & 3;
	length = tag >> 2;
	if (!kind) {
		if (length >= QJ_SNAPPY_LONGER)
			length = snappy_number(b, length - QJ_SNAPPY_LONGER + 1);
		b->literals = length + 1;
	} else if (kind == 1) {
		b->match = (length & 7) + 4;
		b->offset = tag >> 5 << 8 | snappy_number(b, 1);
	} else {
		b->match = length + 1;
		b->offset = snappy_number(b, kind == 2 ? 2 : 4);
	}
	if (b->phase == INFLATE_TOKEN)
		b->phase = kind ? INFLATE_MATCH : INFLATE_LITERALS;
}

/* Returns 1 at the end. */
static __always_inline long inflate_step(struct inflate_buffers *b)
{
	if (b->phase == INFLATE_END)
		return 1;
	if (b->format == QJ_INFLATE_LZ4)
		lz4_step(b);
	else
		snappy_step(b);
	if (b->phase == INFLATE_LITERALS) {
		inflate_literals(b);
		if (!b->literals && b->phase == INFLATE_LITERALS)
			b->phase = b->format == QJ_INFLATE_LZ4 ? INFLATE_OFFSET : INFLATE_TOKEN;
	} else if (b->phase == INFLATE_MATCH) {
		inflate_match(b);
		if (!b->match && b->phase == INFLATE_MATCH)
			b->phase = INFLATE_TOKEN;
	}
	return 0;
}

/* Snappy's format begins with the uncompressed length; 0 if that is invalid. */
static __always_inline __u32 snappy_length(struct inflate_buffers *b)
{
	__u32 length = 0, byte = 0x80;

	for (__u32 n = 0; n < QJ_SNAPPY_LENGTHS; n++) {
		if (byte & 0x80) {
			byte = inflate_byte(b);
			length |= (byte & 0x7f) << 7 * n;
		}
	}
	return byte & 0x80 || b->phase == INFLATE_END ? 0 : length;
}

#endif
