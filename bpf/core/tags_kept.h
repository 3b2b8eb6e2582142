/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tags that arrive in pieces, kept until their query is sent. Works in BPF programs (include
 * vmlinux.h first) and on the host.
 */
#ifndef QJ_TAGS_KEPT_H
#define QJ_TAGS_KEPT_H

#define TAGS_BYTES 480 /* longer tags are not read; a multiple of 8 */
#define TAGS_ROOM  512 /* larger, to detect longer tags; a power of two */

/* Twice as large, so that a piece may begin anywhere. */
struct tags_kept {
	__u8 bytes[2 * TAGS_ROOM];
};

#endif
