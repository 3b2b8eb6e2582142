// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * bpf/cassandra/cql_wire.h and bpf/core/inflate.h as a library: requests are recorded, texts are
 * hashed byte by byte.
 */
#include "inflate_host.h"

#include "cassandra/cql_frame.h"
#include "cassandra/cql_packed.h"

#define HOST_REQUESTS_MAX 4096
#define HOST_TAGS_MAX	  (1 << 16)

/* What was recorded of a connection. */
struct host_request {
	__u64 shape;
	__u32 text_bytes;
	__u16 tags_bytes;
	__u8 command;
	__u8 opcode;
};

struct host_log {
	struct host_request requests[HOST_REQUESTS_MAX];
	size_t count, opaque;
	__u8 tags[HOST_TAGS_MAX]; /* tags of the requests, one after another */
	size_t tags_bytes;
	bool lost;
	const __u8 *begin, *end; /* the readable bytes */
};

static struct host_log *host_log;
static __always_inline bool cql_get(struct cql_walk *walk, void *to, __u32 bytes, __u64 addr)
{
	const __u8 *from = (const __u8 *)(uintptr_t)addr;

	if (walk->connection->inflated) {
		if (addr + bytes > walk->connection->place.addr + walk->connection->place.left)
			abort();
		memcpy(to, host_buffers.inflated + addr, bytes);
		return true;
	}
	if (from < host_log->begin || bytes > (size_t)(host_log->end - from))
		abort();
	memcpy(to, from, bytes);
	return true;
}

static __always_inline void cql_request_read(struct cql_walk *walk, __u8 command)
{
	const struct cql_connection *c = walk->connection;
	struct host_request *request = &host_log->requests[host_log->count % HOST_REQUESTS_MAX];
	__u16 tags = c->tags_bytes <= TAGS_BYTES ? c->tags_bytes : 0;

	if (tags > HOST_TAGS_MAX - host_log->tags_bytes)
		tags = 0;
	*request = (struct host_request){c->shape, c->text_bytes, tags, command, c->opcode};
	memcpy(host_log->tags + host_log->tags_bytes, walk->tags->bytes, tags);
	host_log->tags_bytes += tags;
	host_log->count++;
}

static __always_inline void cql_text(struct cql_walk *walk, __u32 here)
{
	struct cql_connection *c = walk->connection;
	__u32 fed = c->text_bytes - c->text_left, room;
	__u8 chunk[QJ_SHAPE_CHUNK];

	if (here > c->text_left)
		here = c->text_left;
	room = fed < QJ_TEXT_BYTES ? QJ_TEXT_BYTES - fed : 0;
	if (room > here)
		room = here;
	for (__u32 at = 0; at < room; at += QJ_SHAPE_CHUNK) {
		__u32 bytes = room - at < QJ_SHAPE_CHUNK ? room - at : QJ_SHAPE_CHUNK;

		cql_get(walk, chunk, bytes, walk->connection->place.addr + at);
		qj_shape_feed(&c->text, chunk, bytes);
	}
	c->text_left -= here;
	cql_took(walk, here, true);
	if (!c->text_left)
		cql_text_done(walk);
}

static __always_inline void cql_text_done(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	c->shape = qj_shape_end(&c->text);
	if (c->opcode == CQL_BATCH) {
		cql_add_run(c);
		cql_next(c, CQL_AT_BATCH_VALUES, 2);
		return;
	}
	cql_request_read(walk, c->opcode == CQL_PREPARE ? QJ_COMMAND_PREPARE : QJ_COMMAND_QUERY);
	if (c->opcode == CQL_PREPARE && c->version >= 5)
		cql_next(c, CQL_AT_PREPARE_FLAGS, 4);
	else
		cql_rest(c);
}

static __always_inline void cql_recall(struct cql_walk *walk, const __u8 *id)
{
	memcpy(&walk->connection->shape, id, sizeof(walk->connection->shape));
	walk->connection->text_bytes = 0;
}

static __always_inline void cql_learn(struct cql_walk *walk, const __u8 *keyspace, __u32 bytes)
{
	(void)walk;
	(void)keyspace;
	if (!bytes || bytes > CQL_KEYSPACE)
		abort();
}

static __always_inline void cql_compressed_request(struct cql_walk *walk)
{
	walk->connection->shape = 1;
	walk->connection->text_bytes = 0;
	walk->connection->tags_bytes = 0;
	walk->connection->opcode = CQL_EXECUTE;
	host_log->opaque++;
	cql_request_read(walk, QJ_COMMAND_QUERY);
}

/* There is one connection at a time, so there is only one place for its pieces. */
static struct inflate_packed host_kept;
static struct tags_kept host_tags;

static __always_inline void cql_keep_packed(struct cql_walk *walk, __u32 bytes)
{
	__u32 at = walk->connection->packed_have;

	if (at < QJ_PACKED_MAX)
		cql_get(walk, host_kept.bytes + at, bytes, walk->connection->place.addr);
}

static __always_inline __u32 cql_inflated(struct cql_walk *walk, __u64 addr)
{
	struct cql_connection *c = walk->connection;
	__u32 bytes = at_most(c->packed_bytes, QJ_PACKED_MAX);

	if (addr)
		memcpy(host_buffers.packed.bytes, (const void *)(uintptr_t)addr, bytes);
	else
		memcpy(host_buffers.packed.bytes, host_kept.bytes, bytes);
	return cql_inflate_any(c, &host_buffers);
}

int cql_header_crc(__u64 header, __u32 count)
{
	return cql_crc24(header, count);
}

static __always_inline void cql_count_lost(struct cql_walk *walk)
{
	(void)walk;
	host_log->lost = true;
}

#include "cassandra/cql_wire.h"

/* The bytes of one read, in their own copy: reading beyond them is an error. */
static inline void host_read(struct cql_connection *c, const __u8 *bytes, size_t count,
			     struct host_log *log)
{
	__u8 *copy = host_copy(bytes, count);
	struct cql_walk walk = {.connection = c, .tags = &host_tags, .seed = 7};

	c->place = (struct cql_place){.addr = (uintptr_t)copy, .left = count};
	log->begin = copy;
	log->end = copy + count;
	host_log = log;
	for (__u32 i = 0; i < 1 << 16; i++)
		if (cql_step(i, &walk))
			break;
	if (c->place.lost || c->place.left || c->inflated) {
		log->lost = true;
		cql_lose(c);
	}
	free(copy);
}

/*
 * Requests from a new connection's bytes, in reads of `step` bytes (0: one read). Returns how many;
 * SIZE_MAX: framing was lost. `requests` and `tags` have room for HOST_REQUESTS_MAX and
 * HOST_TAGS_MAX.
 */
size_t cql_host(const __u8 *bytes, size_t count, size_t step, struct host_request *requests,
		size_t *opaque, __u8 *tags)
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
	memcpy(requests, log.requests, sizeof(log.requests));
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
		size_t length = snappy_length(b);

		b->limit = length < b->limit ? length : b->limit;
	}
	if (b->limit)
		inflate_run(b);
	memcpy(inflated, b->inflated, b->done);
	return b->done;
}
