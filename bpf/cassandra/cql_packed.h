/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Compressed bodies (protocols 3 and 4: org.apache.cassandra.transport.Compressor) and compressed
 * segments (protocol 5: org.apache.cassandra.net.FrameDecoderLZ4), once their bytes are in a
 * buffer.
 */
#ifndef QJ_CQL_PACKED_H
#define QJ_CQL_PACKED_H

#include "cql_state.h"
#include "core/inflate.h"

/* Uncompressed length of a body. For LZ4, Cassandra writes it before the body. */
static __always_inline __u32 cql_inflates_to(struct inflate_buffers *b)
{
	__u32 length = 0;

	if (b->format == QJ_INFLATE_SNAPPY)
		return snappy_length(b);
	for (__u32 n = 0; n < 4; n++)
		length = length << 8 | inflate_byte(b);
	return b->phase == INFLATE_END ? 0 : length;
}

/*
 * Returns how many bytes were inflated; 0: they are not in this format. If the format is only a
 * guess, the bytes must be all of a body and give exactly the promised length.
 */
static __always_inline __u32 cql_inflate_as(struct cql_connection *c, struct inflate_buffers *b,
					    __u8 format, bool supposed)
{
	bool all;

	inflate_begin(b, format, c->packed_bytes);
	if (!c->framing)
		c->inflates_to = cql_inflates_to(b);
	if (!c->inflates_to || c->inflates_to > CQL_BODY_MAX)
		return 0;
	b->limit = c->inflates_to < QJ_INFLATED_MAX ? c->inflates_to : QJ_INFLATED_MAX;
	inflate_run(b);
	all = b->at == c->packed_bytes && b->done == c->inflates_to;
	if (!all && (supposed || (b->packed_bytes == c->packed_bytes && b->done < b->limit)))
		return 0;
	return b->done;
}

/* Uses the connection's format, or, if it was already open, the format that fits. */
static __always_inline __u32 cql_inflate_any(struct cql_connection *c, struct inflate_buffers *b)
{
	__u32 got;

	if (c->framing)
		return cql_inflate_as(c, b, QJ_INFLATE_LZ4, false);
	if (c->compressor)
		return cql_inflate_as(c, b, c->compressor, false);
	got = cql_inflate_as(c, b, QJ_INFLATE_LZ4, true);
	if (got) {
		c->compressor = QJ_INFLATE_LZ4;
		return got;
	}
	got = cql_inflate_as(c, b, QJ_INFLATE_SNAPPY, true);
	if (got)
		c->compressor = QJ_INFLATE_SNAPPY;
	return got;
}

#endif
