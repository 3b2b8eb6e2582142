/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of Cassandra's connections, shared by its programs. */
#ifndef QJOULE_CASSANDRA_BPF_H
#define QJOULE_CASSANDRA_BPF_H

#include "core/statement.bpf.h"
#include "cql_state.h"
#include "core/inflate.bpf.h"

#define CQL_TEXTS  64 /* statements that arrive in pieces at the same time */
#define CQL_PACKED 64 /* compressed bodies and segments that arrive in pieces at the same time */

struct cql_connections_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cql_connection);
};
extern struct cql_connections_map cql_connections SEC(".maps");

/* The sent part of a statement's text that arrives in several reads or segments. */
struct cql_text {
	__u8 bytes[2 * QJ_TEXT_BYTES];
};

struct cql_texts_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CQL_TEXTS);
	__type(key, __u64); /* session */
	__type(value, struct cql_text);
};
extern struct cql_texts_map cql_texts SEC(".maps");

struct cql_packed_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CQL_PACKED);
	__type(key, __u64); /* session */
	__type(value, struct inflate_packed);
};
extern struct cql_packed_map cql_packed SEC(".maps");

/* Connections whose clients' tags are read. */
struct cql_tagged_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tags_kept);
};
extern struct cql_tagged_map cql_tagged SEC(".maps");

#define CQL_MESSAGE 64 /* offset of the text in a message; a keyspace fits before it */

struct cql_scratch {
	struct qj_md5 md5;
	__u8 message[CQL_MESSAGE + 2 * QJ_TEXT_BYTES + 2 * QJ_MD5_BLOCK]; /* for MD5 */
	struct shape_chunk chunk;
	struct qj_shape_state state;
	struct cql_name keyspace;
	struct cql_text text; /* zeroes, for creating an entry */
};

struct cql_scratch_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cql_scratch);
};
extern struct cql_scratch_map cql_scratch SEC(".maps");

/* A shape's text to send, and its place: in the server's memory, or in this struct. */
struct cql_sent_text {
	__u64 shape;
	__u64 addr;    /* 0: in `bytes`, or stored for the session */
	__u64 session; /* 0: in `bytes` */
	__u32 text_bytes;
	__u32 statement_bytes;
	__u16 server;
	__u8 dialect;
	__u8 inflated; /* `addr` is in the CPU's buffer */
	__u8 reserved[4];
	__u8 bytes[CQL_RUNS_MAX * sizeof(__u64)];
};

/*
 * In requests.bpf.c and bodies.bpf.c: the verifier checks each once. All but the last two return 0.
 */
extern int cql_send_text(const struct cql_sent_text *shown);
extern int cql_emit_query(struct cql_connection *c, __u32 server, __u32 command);
extern int cql_feed(struct cql_connection *c, __u64 addr, __u32 bytes);
extern int cql_keep(struct cql_connection *c, __u64 addr, __u32 offset, __u32 bytes);
extern int cql_learn_id(struct cql_connection *c, __u64 addr, const struct cql_name *keyspace,
			__u32 prefix);
extern int cql_note_use(struct cql_connection *c, __u64 addr);
extern int cql_md5_block(struct qj_md5 *md5);
extern int cql_keep_piece(struct cql_connection *c, __u64 addr, __u32 bytes);
/* Inflates into the CPU's buffer, returns the number of bytes; `addr` 0: from the stored pieces. */
extern int cql_inflate(struct cql_connection *c, __u64 addr);
extern int cql_use(const struct shape_chunk *text, __u32 bytes, struct cql_name *keyspace);

/* Reads at most QJ_TEXT_BYTES of a request, from the server's memory or the inflated bytes. */
static __always_inline long cql_read(void *to, __u64 bytes, __u64 addr, bool inflated)
{
	struct inflate_buffers *buffers;

	if (!inflated)
		return bpf_probe_read_user(to, bytes, (const void *)addr);
	buffers = inflate_buffers_here();
	if (!buffers)
		return -1;
	return bpf_probe_read_kernel(to, bytes, buffers->inflated + at_most(addr, QJ_INFLATED_MAX));
}

static __always_inline struct cql_scratch *cql_scratch_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cql_scratch, &zero);
}

#endif
