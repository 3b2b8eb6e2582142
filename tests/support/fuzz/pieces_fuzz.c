// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * However statements, CQL connections, MongoDB's messages and its replies are split, the same is
 * taken from them. Nothing outside a piece or behind inflated bytes is read, and parsing ends. The
 * input's first byte selects the target. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf -Ibuild/bpf -Itests/support/fuzz \
 *		tests/support/fuzz/pieces_fuzz.c -o pieces_fuzz
 *	./pieces_fuzz -max_total_time=60 -max_len=6000 -dict=tests/support/fuzz/pieces.dict
 */
#include "cql_host.h"
#include "mongodb_host.h"

#include "core/shape_hash.h"

#define REQUEST 0x01020304

/* ---- statements ----------------------------------------------------------------------------- */

/* The hash of a statement in chunks of at most `most` bytes, some of which are empty. */
static __u64 hash_of(const struct host_input *in, __u32 seed, __u8 how, size_t most)
{
	struct qj_shape_state s;
	__u32 pattern = seed;

	qj_shape_begin(&s, seed, 1 + (how & 1), how >> 1);
	for (size_t at = 0, bytes; at < in->left; at += bytes) {
		__u8 *chunk;

		bytes = most ? host_piece(&pattern, most, in->left - at) - pattern % 2 : 64;
		if (bytes > in->left - at)
			bytes = in->left - at;
		chunk = host_copy(in->data + at, bytes);
		qj_shape_feed(&s, chunk, bytes);
		free(chunk);
	}
	return qj_shape_end(&s);
}

static void statement(struct host_input *in)
{
	__u32 seed = host_take(in, 4);
	__u8 how = host_take(in, 1);
	__u64 hash = hash_of(in, seed, how, 0);

	if (hash == 0 || hash == ~0ULL || hash != hash_of(in, seed, how, QJ_SHAPE_CHUNK))
		abort();
}

/* ---- CQL ------------------------------------------------------------------------------------ */

static struct host_log whole, split;

/* A connection in any of its states, even those that no handshake leads to. */
static struct cql_connection connection_of(__u8 how)
{
	struct cql_connection c = {.want = CQL_HEADER};

	c.at = how & 1 ? CQL_AT_ENVELOPE : CQL_AT_UNKNOWN;
	if (how & 2) {
		c.framing = how & 4 ? CQL_SEGMENTS : CQL_SEGMENTS_LZ4;
		c.segment_have = CQL_TRAILER;
	}
	c.compressor = how >> 3 & 3;
	if (c.compressor > QJ_INFLATE_SNAPPY)
		c.compressor = QJ_INFLATE_NONE;
	return c;
}

static void cql(struct host_input *in)
{
	__u32 pattern = host_take(in, 4);
	struct cql_connection one = connection_of(host_take(in, 1)), other = one;

	memset(&whole, 0, sizeof(whole));
	memset(&split, 0, sizeof(split));
	memset(&host_tags, 0, sizeof(host_tags));
	host_read(&one, in->data, in->left, &whole);
	for (size_t at = 0, bytes; at < in->left && !split.lost; at += bytes) {
		bytes = host_piece(&pattern, 64, in->left - at);
		host_read(&other, in->data + at, bytes, &split);
	}
	if (whole.lost || split.lost)
		return;
	if (whole.count != split.count ||
	    memcmp(whole.requests, split.requests, sizeof(whole.requests)) ||
	    whole.tags_bytes != split.tags_bytes ||
	    memcmp(whole.tags, split.tags, whole.tags_bytes))
		abort();
}

/* ---- MongoDB -------------------------------------------------------------------------------- */

static __u64 message_hash(const __u8 *body, size_t size, const __u32 header[4], __u32 pattern,
			  bool skips)
{
	struct qj_mongodb m;
	size_t at = 0;

	qj_mongodb_begin(&m, 1, header);
	while (m.left) {
		__u32 unseen = qj_mongodb_unseen(&m), taken;
		size_t bytes;
		__u8 *piece;

		if (m.left != size - at || unseen > m.left || m.depth > QJ_MONGODB_DEPTH)
			abort();
		if (unseen && (skips || qj_mongodb_is_seen(&m))) {
			qj_mongodb_pass(&m, unseen);
			at += unseen;
			continue;
		}
		bytes = host_piece(&pattern, QJ_MONGODB_CHUNK, size - at);
		piece = host_copy(body + at, bytes);
		taken = qj_mongodb_feed(&m, piece, bytes);
		free(piece);
		if (taken > bytes || (!taken && !qj_mongodb_is_seen(&m)))
			abort();
		at += taken;
	}
	if (at != size)
		abort();
	return qj_mongodb_end(&m);
}

static void message(struct host_input *in)
{
	static const __u32 opcodes[] = {QJ_MONGODB_MSG, QJ_MONGODB_MSG, QJ_MONGODB_QUERY,
					QJ_MONGODB_COMPRESSED, QJ_MONGODB_UPDATE};
	__u32 header[4] = {}, pattern = host_take(in, 4);
	__u64 whole;

	header[3] = opcodes[host_take(in, 1) % (sizeof(opcodes) / sizeof(opcodes[0]))];
	header[0] = QJ_MONGODB_HEADER + in->left;
	if (!qj_mongodb_plausible(header))
		abort();
	whole = message_hash(in->data, in->left, header, 0xffffff00, true);
	if (whole == 0 || whole == ~0ULL ||
	    whole != message_hash(in->data, in->left, header, pattern, false) ||
	    whole != message_hash(in->data, in->left, header, pattern, true))
		abort();
}

/* The size that a client claims. Mostly the true one, because all others are refused. */
static __u32 claimed(const __u8 *packed, size_t size)
{
	__u32 length = 0;

	for (size_t n = 0; n < size && n < QJ_SNAPPY_LENGTHS; n++) {
		length |= (__u32)(packed[n] & 0x7f) << 7 * n;
		if (packed[n] < 0x80)
			break;
	}
	return length;
}

static void packed_message(struct host_input *in)
{
	struct qj_mongodb_packed head = {.compressor = 1};
	__u32 header[4] = {0, 1, 0, QJ_MONGODB_COMPRESSED};
	struct qj_mongodb m;
	__u64 shape;
	__u8 *body;

	head.opcode = host_take(in, 1) & 1 ? QJ_MONGODB_QUERY : QJ_MONGODB_MSG;
	head.size = claimed(in->data, in->left);
	header[0] = QJ_MONGODB_HEADER + QJ_MONGODB_COMPRESSION + in->left;
	body = malloc(QJ_MONGODB_COMPRESSION + in->left);
	memcpy(body, &head, QJ_MONGODB_COMPRESSION);
	memcpy(body + QJ_MONGODB_COMPRESSION, in->data, in->left);
	qj_mongodb_begin(&m, 1, header);
	m.left = m.skip = 0; /* everything has been skipped */
	mongodb_unpack_host(&m, body, 1);
	free(body);
	shape = qj_mongodb_end(&m);
	if (!shape || shape == ~0ULL || m.left || m.skip)
		abort();
	if (m.inflated && m.comment_bytes && m.comment + 1 > m.body)
		abort();
}

static struct qj_mongodb_reply reply_of(const __u8 *sent, size_t size, __u32 pattern, size_t most)
{
	struct qj_mongodb_reply r = {};

	qj_mongodb_reply_begin(&r, REQUEST);
	for (size_t at = 0, bytes; at < size && r.at != QJ_MONGODB_REPLY_DONE; at += bytes) {
		__u8 *piece;

		bytes = host_piece(&pattern, most, size - at);
		piece = host_copy(sent + at, bytes);
		mongodb_reply_feed(&r, piece, bytes);
		free(piece);
		if (r.documents > QJ_MONGODB_DOCUMENTS || r.elements > QJ_MONGODB_ELEMENTS + 1)
			abort();
	}
	return r;
}

static void reply(struct host_input *in)
{
	struct qj_mongodb_reply whole, pieces;
	__u32 pattern = host_take(in, 4), how = host_take(in, 1);
	/* Most replies begin with valid bytes. */
	size_t head = how & 1 ? QJ_MONGODB_HEADER : 0, size = head + in->left;
	__u32 header[4] = {size, 9, REQUEST, QJ_MONGODB_MSG};
	__u8 *sent = malloc(size + 1);

	memcpy(sent, header, head);
	memcpy(sent + head, in->data, in->left);
	whole = reply_of(sent, size, 0xffffff00, 1 << 20);
	pieces = reply_of(sent, size, pattern, 1 + (how >> 1));
	free(sent);
	if (whole.found != pieces.found || whole.cursor != pieces.cursor ||
	    whole.documents != pieces.documents || whole.n != pieces.n)
		abort();
	if (whole.at == QJ_MONGODB_REPLY_DONE && pieces.at != QJ_MONGODB_REPLY_DONE)
		abort();
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static void (*const targets[])(struct host_input *) = {statement, cql, message,
							       packed_message, reply};
	struct host_input in = {data, size};

	targets[host_take(&in, 1) % 5](&in);
	return 0;
}
