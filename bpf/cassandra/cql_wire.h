/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of CQL's native protocol, versions 3 to 5: envelopes, which version 5 puts into
 * segments. Cassandra doc/native_protocol_v{3,4,5}.spec; org.apache.cassandra.net.FrameDecoder*.
 *
 * The includer provides what cql_frame.h declares, and at_most(). The bytes may arrive in any
 * pieces.
 */
#ifndef QJ_CQL_WIRE_H
#define QJ_CQL_WIRE_H

#include "cql_parts.h"

static __always_inline void cql_begin_text(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 bytes = cql_be32(c->bytes);

	if (bytes > c->body_left) {
		cql_rest(c);
		return;
	}
	qj_shape_begin(&c->text, walk->seed, QJ_DIALECT_CQL, QJ_SHAPE_SLASHED);
	c->text_bytes = bytes;
	c->text_left = bytes;
	c->text.truncated = bytes > QJ_TEXT_BYTES;
	walk->connection->place.text_addr = walk->connection->place.addr;
	c->at = CQL_AT_TEXT;
	c->want = 0;
	if (!bytes)
		cql_text_done(walk);
}

static __always_inline void cql_begin_body(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	switch (c->opcode) {
	case CQL_QUERY:
	case CQL_PREPARE:
		cql_next(c, CQL_AT_TEXT_LENGTH, 4);
		break;
	case CQL_EXECUTE:
		cql_next(c, CQL_AT_ID, 2 + QJ_MD5_DIGEST);
		break;
	case CQL_BATCH:
		cql_next(c, CQL_AT_BATCH_HEAD, 3);
		break;
	case CQL_STARTUP:
		cql_next(c, CQL_AT_STARTUP_COUNT, 2);
		break;
	default:
		cql_rest(c);
	}
}

static __always_inline void cql_begin_contents(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (c->has_payload)
		cql_next(c, CQL_AT_PAYLOAD_COUNT, 2);
	else
		cql_begin_body(walk);
}

static __always_inline void cql_begin_envelope(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!cql_is_envelope(c->bytes)) {
		walk->connection->place.lost = 1;
		return;
	}
	c->version = c->bytes[0];
	c->stream = cql_be16(c->bytes + 2) + 1;
	c->opcode = c->bytes[4];
	c->body_left = cql_be32(c->bytes + 5);
	c->shape = 0;
	c->flags = 0;
	c->run_count = 0;
	c->tags_bytes = 0;
	c->has_payload = c->bytes[1] & CQL_PAYLOAD;
	/* In segments the flag has no meaning (native_protocol_v5.spec, 2.4.1.3). */
	if (c->framing || !(c->bytes[1] & CQL_COMPRESSED)) {
		cql_begin_contents(walk);
		return;
	}
	cql_rest(c);
	if (cql_is_statement(c->opcode) && c->body_left) {
		c->skip = 0;
		cql_begin_packed(c, c->body_left);
	}
}

/* The entries of a custom payload: [string] and [bytes] each. */
static __always_inline void cql_payload(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (c->at == CQL_AT_PAYLOAD_KEY) {
		cql_skip(c, cql_be16(c->bytes));
		cql_tags_key(walk);
		cql_next(c, CQL_AT_PAYLOAD_VALUE, 4);
		return;
	}
	if (c->at == CQL_AT_PAYLOAD_COUNT) {
		c->entries = cql_be16(c->bytes);
	} else {
		cql_skip(c, cql_length(c->bytes));
		cql_tags_value(walk);
		c->entries--;
	}
	if (c->entries)
		cql_next(c, CQL_AT_PAYLOAD_KEY, 2);
	else
		cql_begin_body(walk);
}

/* A part is complete. */
static __always_inline void cql_handle_part(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u8 at = c->at;

	c->have = 0;
	if (at == CQL_AT_ENVELOPE)
		cql_begin_envelope(walk);
	else if (at == CQL_AT_TEXT_LENGTH)
		cql_begin_text(walk);
	else if (at == CQL_AT_ID)
		cql_id(walk);
	else if (at <= CQL_AT_PAYLOAD_VALUE)
		cql_payload(walk);
	else if (at <= CQL_AT_PREPARE_KEYSPACE)
		cql_prepare(walk);
	else if (at <= CQL_AT_BATCH_VALUE)
		cql_batch(walk);
	else
		cql_startup(walk);
}

/*
 * A connection in an unknown state: a read may begin with an envelope or a segment. Skips segments
 * that are part of a large envelope, because the first one found may not be its beginning.
 */
static __always_inline void cql_join(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u8 *b = c->bytes;
	__u32 taken =
	    cql_fill(walk, b, c->have, CQL_HEADER, walk->connection->place.left, CQL_GATHER);

	c->have += taken;
	/* In protocol 5, bare envelopes occur only before the startup is done. */
	if (c->have == CQL_HEADER && cql_is_envelope(b) &&
	    (b[0] < 5 || b[4] == CQL_STARTUP || b[4] == CQL_OPTIONS)) {
		walk->connection->place.addr += taken;
		walk->connection->place.left -= taken;
		cql_expect_envelope(c);
		cql_begin_envelope(walk);
	} else if (c->have == CQL_HEADER) {
		c->framing = cql_is_segment(b, CQL_SEGMENTS)	   ? CQL_SEGMENTS
			     : cql_is_segment(b, CQL_SEGMENTS_LZ4) ? CQL_SEGMENTS_LZ4
								   : CQL_PLAIN;
		/* Bytes of this read are read again as a segment; earlier bytes are gone. */
		if (!c->framing || taken != CQL_HEADER)
			walk->connection->place.lost = 1;
		cql_expect_envelope(c);
		c->segment_have = CQL_TRAILER; /* the first segment has no trailer before it */
		c->in_parts = 1;
	} else {
		walk->connection->place.addr += taken;
		walk->connection->place.left -= taken;
	}
}

/* The envelope is complete. If it was a STARTUP, segments begin with the next envelope. */
static __always_inline void cql_envelope_done(struct cql_connection *c)
{
	if (c->opcode == CQL_STARTUP && c->version >= 5 && !c->framing) {
		c->framing = c->compressor == QJ_INFLATE_LZ4 ? CQL_SEGMENTS_LZ4 : CQL_SEGMENTS;
		c->segment_have = CQL_TRAILER;
		c->segment_left = 0;
	}
	cql_expect_envelope(c);
}

/* Framing lost: recovers at a read that begins with an unambiguous header. */
static __always_inline void cql_lose(struct cql_connection *c)
{
	c->at = CQL_AT_UNKNOWN;
	c->framing = CQL_PLAIN;
	c->have = 0;
	c->packed = 0;
	c->inflated = 0;
}

/* Takes the next bytes of an envelope. */
static __always_inline void cql_take(struct cql_walk *walk, __u32 here)
{
	struct cql_connection *c = walk->connection;
	__u32 taken;

	if (c->skip) {
		taken = here < c->skip ? here : c->skip;
		if (c->keeps_tags)
			cql_keep_tags(walk, taken);
		c->skip -= taken;
		cql_took(walk, taken, true);
	} else if (c->at == CQL_AT_TEXT) {
		cql_text(walk, here);
	} else {
		taken = cql_gather(walk, here);
		cql_took(walk, taken, c->at != CQL_AT_ENVELOPE);
		if (c->have == c->want)
			cql_handle_part(walk);
	}
}

static long cql_step(__u32 i, struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 here;

	(void)i;
	if (c->inflated && !walk->connection->place.left)
		cql_end_inflated(walk);
	if (!walk->connection->place.left || walk->connection->place.lost)
		return 1;
	here = c->framing && walk->connection->place.left > c->segment_left
		   ? c->segment_left
		   : walk->connection->place.left;
	if (c->at == CQL_AT_UNKNOWN)
		cql_join(walk);
	else if (c->packed)
		cql_pack(walk, here);
	else if (c->framing && !c->segment_left)
		cql_segment(walk);
	else if (c->framing && c->skip_segment)
		cql_took(walk, here, false);
	else
		cql_take(walk, here);
	if (c->at > CQL_AT_ENVELOPE && !c->body_left)
		cql_envelope_done(c);
	return 0;
}

#endif
