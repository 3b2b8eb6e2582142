/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Compressed bodies and segments for cql_wire.h: collects, inflates and reads them, then returns to
 * the outer bytes.
 */
#ifndef QJ_CQL_UNPACK_H
#define QJ_CQL_UNPACK_H

#include "cql_frame.h"

static __always_inline void cql_begin_contents(struct cql_walk *walk);
static __always_inline void cql_envelope_done(struct cql_connection *c);

/* The collected bytes are compressed: inflates them and continues reading in the result. */
static __always_inline void cql_unpack(struct cql_walk *walk, __u64 addr)
{
	struct cql_connection *c = walk->connection;
	__u32 got = cql_inflated(walk, addr);

	c->packed = 0;
	if (!got) {
		cql_compressed_request(walk);
		if (c->framing) {
			cql_expect_envelope(c);
			c->in_parts = 1;
		}
		return;
	}
	walk->connection->place.outer_addr = walk->connection->place.addr;
	walk->connection->place.outer_left = walk->connection->place.left;
	walk->connection->place.addr = c->inflated_at;
	walk->connection->place.left = got;
	walk->connection->place.text_addr = 0;
	c->inflated = 1;
	if (c->framing) {
		c->segment_left = c->inflates_to;
	} else {
		c->body_left = c->inflates_to;
		cql_begin_contents(walk);
	}
}

static __always_inline void cql_pack(struct cql_walk *walk, __u32 here)
{
	struct cql_connection *c = walk->connection;
	__u64 addr = walk->connection->place.addr;

	if (here > c->packed_bytes - c->packed_have)
		here = c->packed_bytes - c->packed_have;
	if (here < c->packed_bytes) { /* it arrives in pieces */
		if (here > QJ_INFLATE_CHUNK)
			here = QJ_INFLATE_CHUNK;
		cql_keep_packed(walk, here);
		addr = 0;
	}
	c->packed_have += here;
	cql_took(walk, here, !c->framing);
	if (c->packed_have == c->packed_bytes)
		cql_unpack(walk, addr);
}

/* Only the beginning of a long request was inflated: sends what is known of the request. */
static __always_inline void cql_cut(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!cql_is_statement(c->opcode) || c->at == CQL_AT_REST ||
	    (c->at >= CQL_AT_PREPARE_FLAGS && c->at <= CQL_AT_PREPARE_KEYSPACE))
		return;
	if (c->opcode == CQL_BATCH && c->run_count) {
		c->flags |= QJ_QUERY_TRUNCATED;
		c->shape = cql_batch_shape(c, walk->seed);
		cql_request_read(walk, QJ_COMMAND_QUERY);
	} else if (c->at == CQL_AT_TEXT && c->opcode != CQL_BATCH &&
		   c->text_bytes - c->text_left >= QJ_TEXT_BYTES) {
		c->text_left = 0;
		cql_text_done(walk);
	} else {
		cql_compressed_request(walk);
	}
}

/* At the end of the inflated bytes; possibly not all of the body or segment was inflated. */
static __always_inline void cql_end_inflated(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 missing = c->framing ? c->segment_left : c->body_left;

	walk->connection->place.addr = walk->connection->place.outer_addr;
	walk->connection->place.left = walk->connection->place.outer_left;
	walk->connection->place.text_addr = 0;
	c->inflated = 0;
	c->segment_left = 0;
	if (!missing)
		return;
	if (c->at > CQL_AT_ENVELOPE && missing <= c->body_left) {
		if (c->skip < missing) {
			cql_cut(walk);
			cql_rest(c);
		}
		if (c->keeps_tags)
			c->tags_bytes = TAGS_ROOM; /* the missing bytes belong to the tags */
		c->skip -= missing;
		c->body_left -= missing;
		if (!c->body_left)
			cql_envelope_done(c);
		return;
	}
	cql_count_lost(walk);
	cql_expect_envelope(c);
	c->in_parts = 1;
}

#endif
