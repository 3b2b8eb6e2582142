/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Compressed bodies (protocols 3 and 4: org.apache.cassandra.transport.Compressor) and segments
 * (5: org.apache.cassandra.net.FrameDecoderLZ4), once their bytes lie in a buffer.
 */
#ifndef QJ_CQL_PACKED_H
#define QJ_CQL_PACKED_H

#include "cql_state.h"
#include "core/inflate.h"

/* Length of what a body becomes; LZ4's is put before it by Cassandra. */
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
 * How many bytes were inflated; 0: these are none of this format. Where it is only supposed, they
 * must be all of a body, and make exactly what it promises.
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

/* The connection's own format; of one that was open before, the one that fits. */
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
