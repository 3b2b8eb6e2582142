/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The state of a CQL connection's protocol. The server's threads serve many connections in turn,
 * and requests of one connection overlap, so this belongs to connections and not to threads. Works
 * in BPF programs (include vmlinux.h first) and on the host.
 */
#ifndef QJ_CQL_STATE_H
#define QJ_CQL_STATE_H

#include "core/server_state.h"
#include "hashes.h"
#include "qjoule.h"
#include "core/shape_hash.h"

#define CQL_BODY_MAX (256u << 20) /* native_protocol_v5.spec, 2.4.1.6 */
#define CQL_KEYSPACE 48		  /* SchemaConstants.NAME_LENGTH */
#define CQL_GATHER   32 /* the longest part that is collected; the buffer allows it at any offset */
#define CQL_SEGMENT  12 /* trailer and the longer of the two headers */
#define CQL_RUNS_MAX 8	/* different statements sent per batch */

/* What comes next in an envelope. */
enum cql_at {
	CQL_AT_UNKNOWN = 0, /* attached mid-stream: wait for a clear boundary */
	CQL_AT_ENVELOPE,
	CQL_AT_REST, /* the rest of the body, which is ignored */
	CQL_AT_PAYLOAD_COUNT,
	CQL_AT_PAYLOAD_KEY,
	CQL_AT_PAYLOAD_VALUE,
	CQL_AT_TEXT_LENGTH,
	CQL_AT_TEXT,
	CQL_AT_PREPARE_FLAGS,
	CQL_AT_PREPARE_KEYSPACE_LENGTH,
	CQL_AT_PREPARE_KEYSPACE,
	CQL_AT_ID,
	CQL_AT_BATCH_HEAD,
	CQL_AT_BATCH_KIND,
	CQL_AT_BATCH_VALUES,
	CQL_AT_BATCH_VALUE,
	CQL_AT_STARTUP_COUNT,
	CQL_AT_STARTUP_KEY_LENGTH,
	CQL_AT_STARTUP_KEY,
	CQL_AT_STARTUP_VALUE_LENGTH,
	CQL_AT_STARTUP_VALUE,
};

/* Whether envelopes are in segments (protocol 5, after its startup). */
enum cql_framing {
	CQL_PLAIN = 0,
	CQL_SEGMENTS = 1,
	CQL_SEGMENTS_LZ4 = 2,
};

struct cql_name {
	__u8
	    bytes[2 * CQL_KEYSPACE]; /* twice the longest name, so that a read may begin anywhere */
};

/*
 * How far one read has been looked at. In a map and not on the stack: the verifier follows what is
 * on the stack through every order of steps, and on Linux 7.2 finds no end to them.
 */
struct cql_place {
	__u64 addr;	  /* in the server's memory, or in the buffer for inflated bytes */
	__u64 text_addr;  /* where the current text began; 0: in an earlier read */
	__u64 outer_addr; /* where reading continues after the inflated bytes */
	__u32 left;
	__u32 outer_left;
	__u8 lost; /* these bytes are no CQL */
};

struct cql_connection {
	struct cql_place place;
	__u64 session;
	__u64 read_ns; /* when the last bytes arrived */
	__u64 shape;   /* shape of the request so far */
	__u64 last_shape;
	__u64 tags; /* tags of the request that is sent: a hash, or 0 */
	__u64 runs[CQL_RUNS_MAX];
	struct qj_shape_state text;
	__u32 segment_left; /* bytes of the current segment's payload still to come */
	__u32 body_left;    /* the same for the current envelope's body */
	__u32 skip;	    /* how many of these come next and are ignored */
	__u32 text_bytes;
	__u32 text_left;
	__u32 entries; /* remaining entries of a list or map, including the current one */
	__u32 values;
	__u32 flags;	    /* enum qj_query_flag */
	__u32 packed_bytes; /* length of a compressed body or segment, and bytes received so far */
	__u32 packed_have;
	__u32 inflates_to;
	__u32 inflated_at; /* offset of the result in its buffer: 0, hidden from the verifier to
			      limit its search */
	__u16 stream;	   /* the request's stream id + 1 */
	__u16 tags_bytes;  /* bytes of its tags; above TAGS_BYTES: too many */
	__u16 tags_entry;  /* offset in these of the entry that is being read */
	__u8 at;	   /* enum cql_at */
	__u8 want;	   /* bytes to collect, and bytes collected */
	__u8 have;
	__u8 segment_have;
	__u8 framing;	     /* enum cql_framing */
	__u8 compressor;     /* enum inflate_format, from STARTUP or detected */
	__u8 compression;    /* the last STARTUP key was COMPRESSION */
	__u8 opaque;	     /* TLS */
	__u8 opaque_emitted; /* an unknown compression has been reported */
	__u8 version;
	__u8 opcode;
	__u8 run_count;
	__u8 in_parts; /* skipping part of a large envelope: wait for a complete segment */
	__u8 has_payload;
	__u8 packed;   /* a compressed body or segment is arriving */
	__u8 inflated; /* the bytes being read are an inflated one, in the CPU's buffer */
	__u8 skip_segment;
	__u8 keyspace_bytes;
	__u8 keeps_tags; /* the skipped bytes are kept with the tags */
	__u8 bytes[2 * CQL_GATHER];
	__u8 segment[2 * CQL_SEGMENT];
	struct cql_name keyspace; /* set by USE */
};

#endif
