/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parts of CQL's envelopes after they were collected: STARTUP, BATCH, EXECUTE, PREPARE. */
#ifndef QJ_CQL_PARTS_H
#define QJ_CQL_PARTS_H

#include "cql_frame.h"

/* Notes how this connection will compress. */
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

#endif
