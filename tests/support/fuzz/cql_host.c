// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* bpf/cassandra/cql_wire.h and bpf/core/inflate.h as a library. */
#include "cql_host.h"

/*
 * Requests from a new connection's bytes, in reads of `step` bytes (0: one read), skipping `skip`
 * of them. Returns the number of requests; SIZE_MAX: framing was lost. `tags`: room for
 * HOST_TAGS_MAX bytes.
 */
size_t cql_host(const __u8 *bytes, size_t count, size_t step, struct host_request *requests,
		size_t room, size_t *opaque, __u8 *tags)
{
	static struct host_log log;
	struct cql_connection c = {0};

	memset(&log, 0, sizeof(log));
	for (size_t at = 0, here; at < count; at += here) {
		here = step && step < count - at ? step : count - at;
		host_read(&c, bytes + at, here, &log);
		if (log.lost)
			return SIZE_MAX;
	}
	memcpy(requests, log.requests, (log.count < room ? log.count : room) * sizeof(*requests));
	*opaque = log.opaque;
	memcpy(tags, log.tags, log.tags_bytes);
	return log.count;
}

/*
 * Inflates the beginning of a block as far as its bytes are available; returns the inflated size.
 */
size_t inflate_host(const __u8 *packed, size_t count, __u8 format, size_t limit, __u8 *inflated)
{
	struct inflate_buffers *b = &host_buffers;

	inflate_begin(b, format, count);
	b->limit = limit < QJ_INFLATED_MAX ? limit : QJ_INFLATED_MAX;
	memcpy(b->packed.bytes, packed, b->packed_bytes);
	if (format == QJ_INFLATE_SNAPPY) {
		size_t whole = snappy_length(b);

		b->limit = whole < b->limit ? whole : b->limit;
	}
	if (b->limit)
		inflate_run(b);
	memcpy(inflated, b->inflated, b->done);
	return b->done;
}
