// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the part of sockets.bpf.h on bodies: checksums, the statement USE, compression. */
#include "sockets.bpf.h"
#include "cql_packed.h"

struct cql_packed_map cql_packed SEC(".maps");

int cql_header_crc(__u64 header, __u32 count)
{
	return count == 5 ? cql_crc24(header, 5) : cql_crc24(header, 3);
}

int cql_md5_block(struct qj_md5 *md5)
{
	if (md5)
		qj_md5_block(md5);
	return 0;
}

static __always_inline __u8 lower(__u8 byte)
{
	return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
}

static __always_inline bool is_blank(__u8 byte)
{
	return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static __always_inline bool is_name(__u8 byte)
{
	return (lower(byte) >= 'a' && lower(byte) <= 'z') || (byte >= '0' && byte <= '9') ||
	       byte == '_';
}

enum use_at {
	USE_WORD = 0, /* 0, 1, 2: letters of USE */
	USE_AFTER = 3,
	USE_BLANK,
	USE_NAME,
	USE_QUOTED,
	USE_END,
	USE_OTHER, /* a statement other than USE */
};

struct use_walk {
	const struct shape_chunk *text;
	struct cql_name *keyspace;
	__u32 bytes;
	__u32 length; /* length of the name */
	__u8 at;
};

static __always_inline __u8 use_next(__u8 at, __u8 byte)
{
	if (at < USE_AFTER) {
		if (at == USE_WORD && is_blank(byte))
			return USE_WORD;
		return lower(byte) == (at == 0 ? 'u' : at == 1 ? 's' : 'e') ? at + 1 : USE_OTHER;
	}
	if (at == USE_QUOTED)
		return byte == '"' ? USE_END : USE_QUOTED;
	if (at < USE_NAME && is_blank(byte))
		return USE_BLANK;
	if (at == USE_BLANK && byte == '"')
		return USE_QUOTED;
	if (at != USE_AFTER && is_name(byte))
		return USE_NAME;
	return at == USE_NAME ? USE_END : USE_OTHER;
}

/* Called by the kernel's loop helper, so that the verifier checks the loop's body once. */
static long use_byte(__u32 i, struct use_walk *walk)
{
	__u8 before = walk->at, byte;

	if (i >= walk->bytes || before >= USE_END)
		return 1;
	byte = walk->text->bytes[i & (QJ_SHAPE_CHUNK - 1)];
	walk->at = use_next(before, byte);
	if (walk->at != USE_NAME && !(walk->at == USE_QUOTED && before == USE_QUOTED))
		return 0;
	if (walk->length >= CQL_KEYSPACE) {
		walk->at = USE_OTHER;
		return 1;
	}
	walk->keyspace->bytes[walk->length & (QJ_SHAPE_CHUNK - 1)] =
	    walk->at == USE_NAME ? lower(byte) : byte;
	walk->length++;
	return 0;
}

/*
 * Finds the keyspace that a statement `USE name` sets and returns its length; 0: another statement.
 * Quoted names stay as they are, others become lower case (CQL, "Identifiers and keywords").
 */
int cql_use(const struct shape_chunk *text, __u32 bytes, struct cql_name *keyspace)
{
	struct use_walk walk = {.text = text, .keyspace = keyspace, .bytes = bytes};

	if (!text || !keyspace)
		return 0;
	bpf_loop(QJ_SHAPE_CHUNK, use_byte, &walk, 0);
	return walk.at == USE_END || walk.at == USE_NAME ? walk.length : 0;
}

/* ---- compressed bodies and segments ---- */

/* Stores a piece of a body or segment that arrives in several. */
int cql_keep_piece(struct cql_connection *c, __u64 addr, __u32 bytes)
{
	struct inflate_buffers *buffers = inflate_buffers_here();
	struct inflate_packed *kept;
	__u64 session, at, size = bytes;

	if (!c || !buffers || c->packed_have >= QJ_PACKED_MAX)
		return 0;
	session = c->session;
	/* Old content does not matter: only bytes stored from here on are read. */
	if (!c->packed_have)
		bpf_map_update_elem(&cql_packed, &session, &buffers->packed, BPF_ANY);
	kept = bpf_map_lookup_elem(&cql_packed, &session);
	if (!kept)
		return 0; /* the entry with the beginning was evicted */
	at = at_most(c->packed_have, QJ_PACKED_MAX);
	size = at_most(size, QJ_INFLATE_CHUNK);
	if (size)
		bpf_probe_read_user(kept->bytes + at, size, (const void *)addr);
	return 0;
}

int cql_inflate(struct cql_connection *c, __u64 addr)
{
	struct inflate_buffers *buffers = inflate_buffers_here();
	struct inflate_packed *kept;
	__u64 session, bytes;
	long failed = -1;

	if (!c || !buffers)
		return 0;
	bytes = at_most(c->packed_bytes, QJ_PACKED_MAX);
	if (addr) {
		failed = bpf_probe_read_user(buffers->packed.bytes, bytes, (const void *)addr);
	} else {
		session = c->session;
		kept = bpf_map_lookup_elem(&cql_packed, &session);
		if (kept)
			failed = bpf_probe_read_kernel(buffers->packed.bytes, bytes, kept->bytes);
		bpf_map_delete_elem(&cql_packed, &session);
	}
	return failed ? 0 : cql_inflate_any(c, buffers);
}
