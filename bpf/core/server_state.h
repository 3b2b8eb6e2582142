/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State of a thread or connection that the programs of several servers share. Works in BPF programs
 * (include vmlinux.h first) and on the host.
 */
#ifndef QJOULE_SERVER_STATE_H
#define QJOULE_SERVER_STATE_H

/*
 * The server's own state of the current query, at the beginning of each bpf/<server>/thread.h;
 * zeroed when the query ends.
 */
struct of_query {
	__u64 words[2];
};

/* The turn of a thread that serves many connections, as defined in key_request.bpf.h. */
struct key_turn {
	__u64 sleeps;	  /* the thread's count of sleeps when it last read a request */
	__u32 unanswered; /* requests read in this turn and not yet answered */
	__u32 reserved;
};

/* ---- tags that arrive in pieces, stored until their query is sent ---- */

#define TAGS_BYTES 480 /* longer tags are not read; a multiple of 8 */
#define TAGS_ROOM  512 /* larger, to detect longer tags; a power of two */

/* Twice as large, so that a piece may begin anywhere. */
struct tags_kept {
	__u8 bytes[2 * TAGS_ROOM];
};

/* ---- compressed bytes and the decompressed result: inflate.h ---- */

#define QJ_PACKED_MAX	 (64u << 10)  /* compressed bytes that are read */
#define QJ_INFLATED_MAX	 (128u << 10) /* decompressed bytes; both are powers of two */
#define QJ_INFLATE_CHUNK 4096

enum inflate_format {
	QJ_INFLATE_NONE = 0,
	QJ_INFLATE_LZ4 = 1,
	QJ_INFLATE_SNAPPY = 2,
};

/* QJ_INFLATE_CHUNK of slack: a copy may write that far beyond the end. */
struct inflate_packed {
	__u8 bytes[QJ_PACKED_MAX + QJ_INFLATE_CHUNK];
};
/* In memory that the verifier does not track: otherwise it would follow every sum. */
struct inflate_buffers {
	__u32 at; /* offset in the packed bytes */
	__u32 packed_bytes;
	__u32 done; /* bytes inflated so far, and their maximum */
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
