/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What is kept of a CQL connection: where it is in its protocol. Threads of the server serve many
 * connections in turn, and requests of one connection overlap, so nothing of this is a thread's.
 * Works in BPF programs (include vmlinux.h first) and on the host.
 */
#ifndef QJ_CQL_STATE_H
#define QJ_CQL_STATE_H

#include "core/inflate_state.h"
#include "md5.h"
#include "qjoule.h"
#include "core/shape_hash.h"
#include "core/tags_kept.h"

#define CQL_BODY_MAX (256u << 20) /* native_protocol_v5.spec, 2.4.1.6 */
#define CQL_KEYSPACE 48		  /* SchemaConstants.NAME_LENGTH */
#define CQL_GATHER   32		  /* the longest part that is gathered, and room for it anywhere */
#define CQL_SEGMENT  12		  /* trailer and the longer of the two headers */
#define CQL_RUNS_MAX 8		  /* different statements of a batch that are sent */

/* What comes next in an envelope. */
enum cql_at {
	CQL_AT_UNKNOWN = 0, /* attached in the middle: wait for a clear boundary */
	CQL_AT_ENVELOPE,
	CQL_AT_REST, /* of the body: nobody looks at it */
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

/* Whether envelopes come in segments (protocol 5, once it has been started). */
enum cql_framing {
	CQL_PLAIN = 0,
	CQL_SEGMENTS = 1,
	CQL_SEGMENTS_LZ4 = 2,
};

struct cql_name {
	__u8 bytes[2 * CQL_KEYSPACE]; /* twice the longest: it may be read to anywhere */
};

struct cql_connection {
	__u64 session;
	__u64 read_ns; /* when the last bytes came */
	__u64 shape;   /* of the request, as far as it is known */
	__u64 last_shape;
	__u64 tags; /* of the request that is sent: a hash, or 0 */
	__u64 runs[CQL_RUNS_MAX];
	struct qj_shape_state text;
	__u32 segment_left; /* bytes of the present segment's payload still to come */
	__u32 body_left;    /* of the present envelope's body */
	__u32 skip;	    /* of these, the next ones that nobody looks at */
	__u32 text_bytes;
	__u32 text_left;
	__u32 entries; /* of a list or a map still to come, the present one included */
	__u32 values;
	__u32 flags;	    /* enum qj_query_flag */
	__u32 packed_bytes; /* of a compressed body or segment, and those that have come */
	__u32 packed_have;
	__u32 inflates_to;
	__u32 inflated_at; /* where that begins in its buffer: 0, which the verifier must not know,
			      or it would follow every sum that begins there */
	__u16 stream;	   /* of the request, + 1 */
	__u16 tags_bytes;  /* of its tags; more than TAGS_BYTES: too many */
	__u16 tags_entry;  /* where in these the entry begins that is being read */
	__u8 at;	   /* enum cql_at */
	__u8 want;	   /* bytes to gather, and those that have been */
	__u8 have;
	__u8 segment_have;
	__u8 framing;	     /* enum cql_framing */
	__u8 compressor;     /* enum inflate_format: what STARTUP asked for, or what was seen */
	__u8 compression;    /* the STARTUP key that was read was that */
	__u8 opaque;	     /* TLS */
	__u8 opaque_emitted; /* an unknown compression has been reported */
	__u8 version;
	__u8 opcode;
	__u8 run_count;
	__u8 in_parts; /* what is skipped is part of a large envelope: until a whole segment */
	__u8 has_payload;
	__u8 packed;   /* a compressed body or segment is coming */
	__u8 inflated; /* what is being read is such a one, in the CPU's buffer */
	__u8 skip_segment;
	__u8 keyspace_bytes;
	__u8 keeps_tags; /* what is skipped is kept with its tags */
	__u8 bytes[2 * CQL_GATHER];
	__u8 segment[2 * CQL_SEGMENT];
	struct cql_name keyspace; /* that USE has set */
};

#endif
