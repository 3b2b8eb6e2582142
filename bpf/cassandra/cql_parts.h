/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Parts of CQL's envelopes after they were collected: STARTUP, BATCH, EXECUTE, PREPARE; tags in
 * custom payloads; compressed bodies and segments.
 */
#ifndef QJ_CQL_PARTS_H
#define QJ_CQL_PARTS_H

#include "cql_frame.h"

/* Stores how this connection will compress. */
static __always_inline void cql_startup(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 length = cql_be16(c->bytes);

	switch (c->at) {
	case CQL_AT_STARTUP_COUNT:
		c->entries = length;
		c->compressor = QJ_INFLATE_NONE;
		break;
	case CQL_AT_STARTUP_KEY_LENGTH:
		c->compression = 0;
		if (length == sizeof(CQL_COMPRESSION) - 1) {
			cql_next(c, CQL_AT_STARTUP_KEY, length);
			return;
		}
		cql_skip(c, length);
		cql_next(c, CQL_AT_STARTUP_VALUE_LENGTH, 2);
		return;
	case CQL_AT_STARTUP_KEY:
		c->compression = cql_is_compression(c->bytes);
		cql_next(c, CQL_AT_STARTUP_VALUE_LENGTH, 2);
		return;
	case CQL_AT_STARTUP_VALUE_LENGTH:
		c->entries--;
		if (c->compression && (length == 3 || length == 6)) {
			cql_next(c, CQL_AT_STARTUP_VALUE, length);
			return;
		}
		cql_skip(c, length);
		break;
	default:
		c->compressor = cql_compressor(c->bytes, c->want);
	}
	if (c->entries)
		cql_next(c, CQL_AT_STARTUP_KEY_LENGTH, 2);
	else
		cql_rest(c);
}

static __always_inline void cql_batch(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	switch (c->at) {
	case CQL_AT_BATCH_HEAD:
		c->entries = cql_be16(c->bytes + 1);
		break;
	case CQL_AT_BATCH_KIND:
		if (c->bytes[0])
			cql_next(c, CQL_AT_ID, 2 + QJ_MD5_DIGEST);
		else
			cql_next(c, CQL_AT_TEXT_LENGTH, 4);
		return;
	case CQL_AT_BATCH_VALUES:
		c->values = cql_be16(c->bytes);
		break;
	default:
		cql_skip(c, cql_length(c->bytes));
		c->values--;
	}
	if (c->at != CQL_AT_BATCH_HEAD && c->values) {
		cql_next(c, CQL_AT_BATCH_VALUE, 4);
		return;
	}
	if (c->at != CQL_AT_BATCH_HEAD)
		c->entries--;
	if (c->entries) {
		cql_next(c, CQL_AT_BATCH_KIND, 1);
		return;
	}
	c->shape = cql_batch_shape(c, walk->seed);
	cql_request_read(walk, QJ_COMMAND_QUERY);
	cql_rest(c);
}

/* The statement id in an EXECUTE or in a batch. */
static __always_inline void cql_id(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (cql_be16(c->bytes) != QJ_MD5_DIGEST) {
		cql_rest(c);
		return;
	}
	cql_recall(walk, c->bytes + 2);
	if (c->opcode == CQL_BATCH) {
		cql_add_run(c);
		cql_next(c, CQL_AT_BATCH_VALUES, 2);
		return;
	}
	cql_request_read(walk, QJ_COMMAND_EXECUTE);
	cql_rest(c);
}

/* Options of PREPARE (protocol 5): a keyspace for this statement. */
static __always_inline void cql_prepare(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	__u32 length;

	if (c->at == CQL_AT_PREPARE_FLAGS && cql_be32(c->bytes) & CQL_WITH_KEYSPACE) {
		cql_next(c, CQL_AT_PREPARE_KEYSPACE_LENGTH, 2);
		return;
	}
	if (c->at == CQL_AT_PREPARE_KEYSPACE_LENGTH) {
		length = cql_be16(c->bytes);
		if (length && length <= CQL_KEYSPACE)
			cql_next(c, CQL_AT_PREPARE_KEYSPACE, length);
		else
			cql_rest(c);
		return;
	}
	if (c->at == CQL_AT_PREPARE_KEYSPACE)
		cql_learn(walk, c->bytes, c->want);
	cql_rest(c);
}

/*
 * Tags in the custom payload that may precede a request's body: entries with keys `qjoule.KEY`
 * ([bytes map]: native_protocol_v4.spec, 2.2 and 3). Stored as sent: all of them, or none if they
 * are too long. Other applications' entries are dropped.
 */

#define CQL_TAG_PREFIX	 "qjoule."
#define CQL_TAG_PREFIXED (sizeof(CQL_TAG_PREFIX) - 1)

/* The next bytes belong to an entry: stores those that fit. */
static __always_inline void cql_keep_tags(struct cql_walk *walk, __u32 bytes)
{
	struct cql_connection *c = walk->connection;
	__u64 at = at_most(c->tags_bytes, TAGS_ROOM), here = at_most(bytes, TAGS_ROOM - at);

	here = at_most(here, TAGS_ROOM);
	if (!walk->tags || !here)
		return;
	if (!cql_get(walk, walk->tags->bytes + at, here, walk->connection->place.addr))
		walk->connection->place.lost = 1;
	c->tags_bytes = at + here;
}

/* Stores collected bytes of an entry: the next length. */
static __always_inline void cql_keep_length(struct cql_walk *walk, __u32 bytes)
{
	struct cql_connection *c = walk->connection;
	__u64 at = at_most(c->tags_bytes, TAGS_ROOM);

	for (__u32 i = 0; i < bytes; i++)
		walk->tags->bytes[at + i] = c->bytes[i];
	c->tags_bytes = at_most(at + bytes, TAGS_ROOM);
}

static __always_inline bool cql_is_tag(const __u8 *entry)
{
	for (__u32 i = 0; i < CQL_TAG_PREFIXED; i++)
		if (entry[2 + i] != CQL_TAG_PREFIX[i])
			return false;
	return cql_be16(entry) > CQL_TAG_PREFIXED;
}

/* An entry's key length was collected. Skips the key, which is stored ... */
static __always_inline void cql_tags_key(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!walk->tags)
		return;
	c->tags_entry = c->tags_bytes;
	cql_keep_length(walk, 2);
	c->keeps_tags = 1;
}

/* ... and likewise the length of its value, if the key is a tag's. */
static __always_inline void cql_tags_value(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!walk->tags)
		return;
	if (!cql_is_tag(walk->tags->bytes + at_most(c->tags_entry, TAGS_ROOM))) {
		c->tags_bytes = c->tags_entry;
		return;
	}
	cql_keep_length(walk, 4);
	c->keeps_tags = 1;
}

/*
 * Compressed bodies and segments for cql_wire.h: collects, inflates and reads them, then returns to
 * the outer bytes.
 */

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
	if (here < c->packed_bytes) { /* the body or segment arrives in pieces */
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

/* Only the beginning of a long request was inflated: sends the known part of the request. */
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
