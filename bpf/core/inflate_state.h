/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where compressed bytes lie, and what is made of them: inflate.h. */
#ifndef QJ_INFLATE_STATE_H
#define QJ_INFLATE_STATE_H

#define QJ_PACKED_MAX	 (64u << 10)  /* compressed bytes that are looked at */
#define QJ_INFLATED_MAX	 (128u << 10) /* and what is made of them: powers of two */
#define QJ_INFLATE_CHUNK 4096

enum inflate_format {
	QJ_INFLATE_NONE = 0,
	QJ_INFLATE_LZ4 = 1,
	QJ_INFLATE_SNAPPY = 2,
};

/* Larger by what one copy may reach beyond. */
struct inflate_packed {
	__u8 bytes[QJ_PACKED_MAX + QJ_INFLATE_CHUNK];
};
/* In memory that the verifier knows nothing of: it would follow every sum. */
struct inflate_buffers {
	__u32 at; /* in the packed bytes */
	__u32 packed_bytes;
	__u32 done; /* inflated bytes, and how many there may be */
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
