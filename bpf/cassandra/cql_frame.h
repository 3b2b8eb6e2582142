/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parts of cql_wire.h: numbers, envelope headers, segments. */
#ifndef QJ_CQL_FRAME_H
#define QJ_CQL_FRAME_H

#include "cql_state.h"

#define CQL_HEADER  9
#define CQL_TRAILER 4

/* Opcodes of requests (2.4.1.5). */
#define CQL_STARTUP	  0x01
#define CQL_OPTIONS	  0x05
#define CQL_QUERY	  0x07
#define CQL_PREPARE	  0x09
#define CQL_EXECUTE	  0x0a
#define CQL_REGISTER	  0x0b
#define CQL_BATCH	  0x0d
#define CQL_AUTH_RESPONSE 0x0f
#define CQL_REQUESTS                                                                               \
	(1u << CQL_STARTUP | 1u << CQL_OPTIONS | 1u << CQL_QUERY | 1u << CQL_PREPARE |             \
	 1u << CQL_EXECUTE | 1u << CQL_REGISTER | 1u << CQL_BATCH | 1u << CQL_AUTH_RESPONSE)
#define CQL_STATEMENTS (1u << CQL_QUERY | 1u << CQL_PREPARE | 1u << CQL_EXECUTE | 1u << CQL_BATCH)

/* Flags of an envelope (2.4.1.3). */
#define CQL_COMPRESSED	  0x01
#define CQL_PAYLOAD	  0x04
#define CQL_FLAGS	  0x1f
#define CQL_WITH_KEYSPACE 0x01 /* a flag of PREPARE (4.1.5) */
#define CQL_COMPRESSION	  "COMPRESSION"
#define CQL_TLS_HANDSHAKE 0x16 /* RFC 8446, ContentType */

/* The bytes of one read, and the buffers that they are parsed into. */
struct cql_walk {
	struct cql_connection *connection;
	struct tags_kept *tags; /* buffer for tags; NULL: tags are not read */
	__u64 seed;
	__u64 socket; /* the socket that was read */
	__u16 server;
};

/* Provided by the includer. The first is cql_crc24(), where the verifier checks that once. */
extern int cql_header_crc(__u64 header, __u32 count);
static __always_inline bool cql_get(struct cql_walk *walk, void *to, __u32 bytes, __u64 addr);
static __always_inline void cql_text(struct cql_walk *walk, __u32 here);
static __always_inline void cql_text_done(struct cql_walk *walk);
static __always_inline void cql_recall(struct cql_walk *walk, const __u8 *id);
static __always_inline void cql_learn(struct cql_walk *walk, const __u8 *keyspace, __u32 bytes);
static __always_inline void cql_request_read(struct cql_walk *walk, __u8 command);
static __always_inline void cql_compressed_request(struct cql_walk *walk);
static __always_inline void cql_keep_packed(struct cql_walk *walk, __u32 bytes);
static __always_inline __u32 cql_inflated(struct cql_walk *walk, __u64 addr);
static __always_inline void cql_count_lost(struct cql_walk *walk);

static __always_inline __u32 cql_be16(const __u8 *b)
{
	return (__u32)b[0] << 8 | b[1];
}

static __always_inline __u32 cql_be32(const __u8 *b)
{
	return cql_be16(b) << 16 | cql_be16(b + 2);
}

/* Length of [bytes] or [value]; a negative one means none. */
static __always_inline __u32 cql_length(const __u8 *b)
{
	return b[0] & 0x80 ? 0 : cql_be32(b);
}

static __always_inline bool cql_is_statement(__u8 opcode)
{
	return opcode < 32 && (CQL_STATEMENTS >> opcode & 1);
}

static __always_inline bool cql_is_envelope(const __u8 *b)
{
	return b[0] >= 3 && b[0] <= 6 && !(b[1] & ~CQL_FLAGS) && !(b[2] & 0x80) && b[4] < 32 &&
	       (CQL_REQUESTS >> b[4] & 1) && cql_be32(b + 5) <= CQL_BODY_MAX;
}

static __always_inline bool cql_is_compression(const __u8 *b)
{
	for (__u32 i = 0; i < sizeof(CQL_COMPRESSION) - 1; i++)
		if (b[i] != CQL_COMPRESSION[i])
			return false;
	return true;
}

/* The two possible values of COMPRESSION, distinguished by length and first letter. */
static __always_inline __u8 cql_compressor(const __u8 *b, __u32 length)
{
	if (length == 3 && (b[0] | 0x20) == 'l' && (b[1] | 0x20) == 'z' && b[2] == '4')
		return QJ_INFLATE_LZ4;
	if (length == 6 && (b[0] | 0x20) == 's' && (b[1] | 0x20) == 'n')
		return QJ_INFLATE_SNAPPY;
	return QJ_INFLATE_NONE;
}

static __always_inline void cql_rest(struct cql_connection *c)
{
	c->at = CQL_AT_REST;
	c->skip = c->body_left;
	c->keeps_tags = 0;
	c->have = 0;
}

/* Skips the next bytes of the body. */
static __always_inline void cql_skip(struct cql_connection *c, __u32 bytes)
{
	c->skip = bytes < c->body_left ? bytes : c->body_left;
	c->keeps_tags = 0;
}

/* The `want` bytes after the skipped ones form a part. A body with fewer is malformed. */
static __always_inline void cql_next(struct cql_connection *c, __u8 at, __u32 want)
{
	if (want > c->body_left - c->skip) {
		cql_rest(c);
		return;
	}
	c->at = at;
	c->want = want;
	c->have = 0;
}

static __always_inline void cql_took(struct cql_walk *walk, __u32 bytes, bool of_body)
{
	struct cql_connection *c = walk->connection;

	walk->connection->place.addr += bytes;
	walk->connection->place.left -= bytes;
	if (c->framing)
		c->segment_left -= bytes;
	if (of_body)
		c->body_left -= bytes;
}

/* Adds bytes to a part; returns how many were added. */
static __always_inline __u32 cql_fill(struct cql_walk *walk, __u8 *to, __u64 have, __u64 want,
				      __u32 here, __u64 max)
{
	__u64 take = want - have;

	if (take > here)
		take = here;
	take = at_most(take, max);
	have = at_most(have, max);
	if (take && !cql_get(walk, to + have, take, walk->connection->place.addr))
		walk->connection->place.lost = 1;
	return take;
}

static __always_inline __u32 cql_gather(struct cql_walk *walk, __u32 here)
{
	struct cql_connection *c = walk->connection;
	__u32 taken = cql_fill(walk, c->bytes, c->have, c->want, here, CQL_GATHER);

	c->have += taken;
	return taken;
}

static __always_inline __u32 cql_le24(const __u8 *b)
{
	return b[0] | (__u32)b[1] << 8 | (__u32)b[2] << 16;
}

/* True if this is a segment's header: 6 bytes, or 8 with LZ4. 8 can be read. */
static __always_inline bool cql_is_segment(const __u8 *b, __u8 framing)
{
	__u32 count = framing == CQL_SEGMENTS_LZ4 ? 5 : 3;
	__u64 header;

	__builtin_memcpy(&header, b, sizeof(header));
	return (__u32)cql_header_crc(header, count) == (header >> 8 * count & 0xffffff);
}

static __always_inline void cql_expect_envelope(struct cql_connection *c)
{
	c->at = CQL_AT_ENVELOPE;
	c->want = CQL_HEADER;
	c->have = 0;
	c->skip = 0;
	c->body_left = 0;
}

/* The next bytes are compressed, so they are collected first. */
static __always_inline void cql_begin_packed(struct cql_connection *c, __u32 bytes)
{
	c->packed = 1;
	c->packed_bytes = bytes;
	c->packed_have = 0;
}

static __always_inline void cql_begin_segment(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	const __u8 *b = c->segment + CQL_TRAILER;
	bool lz4 = c->framing == CQL_SEGMENTS_LZ4;
	bool whole = lz4 ? b[4] & 4 : b[2] & 2;

	c->segment_have = 0;
	if (!cql_is_segment(b, c->framing)) {
		walk->connection->place.lost = 1;
		return;
	}
	c->segment_left = cql_le24(b) & 0x1ffff;
	c->inflates_to = lz4 ? (cql_le24(b + 2) >> 1) & 0x1ffff : 0; /* 0: uncompressed */
	if (whole) {
		cql_expect_envelope(c);
		c->in_parts = 0;
	}
	c->skip_segment = c->in_parts;
	if (c->inflates_to && !c->skip_segment)
		cql_begin_packed(c, c->segment_left);
}

/* The last segment's trailer and the next segment's header. */
static __always_inline void cql_segment(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 want = CQL_TRAILER + (c->framing == CQL_SEGMENTS_LZ4 ? 8 : 6), taken;

	taken = cql_fill(walk, c->segment, c->segment_have, want, walk->connection->place.left,
			 CQL_SEGMENT);
	c->segment_have += taken;
	walk->connection->place.addr += taken;
	walk->connection->place.left -= taken;
	if (c->segment_have == want)
		cql_begin_segment(walk);
}

/* Adds a batch's statement; equal ones in a row count once. */
static __always_inline void cql_add_run(struct cql_connection *c)
{
	if (c->run_count && c->shape == c->last_shape)
		return;
	c->last_shape = c->shape;
	if (c->run_count == CQL_RUNS_MAX) {
		c->flags |= QJ_QUERY_TRUNCATED;
		return;
	}
	c->runs[c->run_count & (CQL_RUNS_MAX - 1)] = c->shape;
	c->run_count++;
}

static __always_inline __u64 cql_batch_shape(const struct cql_connection *c, __u64 seed)
{
	__u64 key = qj_shape_mix(seed + QJ_DIALECT_CQL_BATCH) | 1;
	__u64 hash = qj_shape_mix(seed ^ key);

	for (__u32 i = 0; i < CQL_RUNS_MAX; i++)
		if (i < c->run_count)
			hash = qj_shape_step(hash, c->runs[i], key);
	hash = qj_shape_mix(qj_shape_step(hash, c->flags & QJ_QUERY_TRUNCATED, key));
	return hash + 1 < 2 ? 1 : hash;
}

#endif
