/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The compressed bytes and the decompressed result; used by inflate.h. */
#ifndef QJ_INFLATE_STATE_H
#define QJ_INFLATE_STATE_H

#define QJ_PACKED_MAX	 (64u << 10)  /* compressed bytes that are read */
#define QJ_INFLATED_MAX	 (128u << 10) /* decompressed bytes; both are powers of two */
#define QJ_INFLATE_CHUNK 4096

enum inflate_format {
	QJ_INFLATE_NONE = 0,
	QJ_INFLATE_LZ4 = 1,
	QJ_INFLATE_SNAPPY = 2,
};

/* Larger than needed by the most that one copy may write beyond the end. */
struct inflate_packed {
	__u8 bytes[QJ_PACKED_MAX + QJ_INFLATE_CHUNK];
};
/* Kept in memory that the verifier does not track: otherwise it would follow every sum. */
struct inflate_buffers {
	__u32 at; /* offset in the packed bytes */
	__u32 packed_bytes;
	__u32 done; /* bytes inflated so far, and the most there may be */
	__u32 limit;
	__u32 literals;
	__u32 match;
	__u32 offset;
	__u8 format; /* enum inflate_format */
	__u8 phase;
	__u8 reserved[2];
	struct inflate_packed packed;
	__u8 inflated[QJ_INFLATED_MAX + QJ_INFLATE_CHUNK];
};

#endif
