/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The state of a CQL connection's protocol. The server's threads serve many connections in turn,
 * and requests of one connection overlap, so this belongs to connections and not to threads. Works
 * in BPF programs (include vmlinux.h first) and on the host.
 */
#ifndef QJ_CQL_STATE_H
#define QJ_CQL_STATE_H

#include "core/server_state.h"
#include "qjoule.h"
#include "core/shape_hash.h"

/*
 * MD5 (RFC 1321), for Cassandra's ids of prepared statements, and the checksum of segments'
 * headers. Works in BPF programs (include vmlinux.h first) and on the host.
 */

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define QJ_MD5_BLOCK  64
#define QJ_MD5_DIGEST 16

struct qj_md5 {
	__u32 state[4];
	__u32 words[QJ_MD5_BLOCK / 4]; /* the block, little-endian */
};

/* RFC 1321, 3.4: the integer part of 4294967296 times abs(sin(i + 1)). */
static const __u32 qj_md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static inline void qj_md5_begin(struct qj_md5 *m)
{
	m->state[0] = 0x67452301;
	m->state[1] = 0xefcdab89;
	m->state[2] = 0x98badcfe;
	m->state[3] = 0x10325476;
}

/* One step of the 64: selects function, word and rotation. */
static inline __u32 qj_md5_step(const struct qj_md5 *m, __u32 i, __u32 a, __u32 b, __u32 c, __u32 d)
{
	__u32 round = i >> 4, word = i, turns, turn,
	      f; /* turns: the rotations of four steps, a byte each */

	if (round == 0) {
		turns = 0x16110c07;
		f = (b & c) | (~b & d);
	} else if (round == 1) {
		turns = 0x140e0905;
		f = (d & b) | (~d & c);
		word = 5 * i + 1;
	} else if (round == 2) {
		turns = 0x17100b04;
		f = b ^ c ^ d;
		word = 3 * i + 5;
	} else {
		turns = 0x150f0a06;
		f = c ^ (b | ~d);
		word = 7 * i;
	}
	turn = turns >> 8 * (i & 3) & 31;
	f += a + qj_md5_sines[i & 63] + m->words[word & 15];
	return b + (f << turn | f >> (32 - turn));
}

/* Adds the block to the digest. */
static inline void qj_md5_block(struct qj_md5 *m)
{
	__u32 a = m->state[0], b = m->state[1], c = m->state[2], d = m->state[3];

#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < 64; i++) {
		__u32 next = qj_md5_step(m, i, a, b, c, d);

		a = d;
		d = c;
		c = b;
		b = next;
	}
	m->state[0] += a;
	m->state[1] += b;
	m->state[2] += c;
	m->state[3] += d;
}

/* CRC24 of the first `count` bytes of a segment's header: org.apache.cassandra.utils.Crc. */
static __always_inline __u32 cql_crc24(__u64 header, __u32 count)
{
	__u32 crc = 0x875060;

	for (__u32 i = 0; i < count; i++, header >>= 8) {
		crc ^= (__u32)(header & 0xff) << 16;
		for (__u32 bit = 0; bit < 8; bit++) {
			crc <<= 1;
			crc ^= (crc >> 24 & 1) * 0x1974f0b; /* without a branch, for the verifier */
		}
	}
	return crc & 0xffffff;
}

#define CQL_BODY_MAX (256u << 20) /* native_protocol_v5.spec, 2.4.1.6 */
#define CQL_KEYSPACE 48		  /* SchemaConstants.NAME_LENGTH */
#define CQL_GATHER   32 /* the longest part that is collected; the buffer allows it at any offset */
#define CQL_SEGMENT  12 /* trailer and the longer of the two headers */
#define CQL_RUNS_MAX 8	/* different statements sent per batch */

/* The next part of an envelope. */
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

/* Says if envelopes are in segments (protocol 5, after its startup). */
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
 * The position within one read. In a map and not on the stack: the verifier follows values on the
 * stack through every order of steps, and on Linux 7.2 finds no end to them.
 */
struct cql_place {
	__u64 addr;	  /* in the server's memory, or in the buffer for inflated bytes */
	__u64 text_addr;  /* where the current text began; 0: in an earlier read */
	__u64 outer_addr; /* where reading continues after the inflated bytes */
	__u32 left;
	__u32 outer_left;
	__u8 lost; /* these bytes are not CQL */
};

struct cql_connection {
	struct cql_place place;
	__u64 session;
	__u64 read_ns; /* when the last bytes arrived */
	__u64 shape;   /* shape of the request so far */
	__u64 last_shape;
	__u64 tags; /* tags of the request: a hash, or 0 */
	__u64 runs[CQL_RUNS_MAX];
	struct qj_shape_state text;
	__u32 segment_left; /* bytes of the current segment's payload still to come */
	__u32 body_left;    /* the same for the current envelope's body */
	__u32 skip;	    /* how many of these come next and are skipped */
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
	__u16 tags_bytes;  /* bytes of the request's tags; above TAGS_BYTES: too many */
	__u16 tags_entry;  /* offset in the tags of the current entry */
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
	__u8 inflated; /* the current bytes are inflated, in the CPU's buffer */
	__u8 skip_segment;
	__u8 keyspace_bytes;
	__u8 keeps_tags; /* the skipped bytes are stored with the tags */
	__u8 bytes[2 * CQL_GATHER];
	__u8 segment[2 * CQL_SEGMENT];
	struct cql_name keyspace; /* set by USE */
};

#endif
