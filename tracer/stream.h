/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The tracer's output: records gathered by kind, written as blocks (bpf/qjoule.h, framing). */
#ifndef QJ_STREAM_H
#define QJ_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qjoule.h"

struct stream;

struct stream *stream_new(int fd);
void stream_free(struct stream *stream);

/* Gathers one record of a kind whose records have one size. */
void stream_add(struct stream *stream, enum qj_block_kind kind, const void *record, size_t bytes);

/* A record with text behind it is a block of its own, padded to 8 bytes. */
void stream_add_text(struct stream *stream, enum qj_block_kind kind, const void *record,
		     size_t bytes, const void *text, size_t text_bytes);

/*
 * Writes all that was gathered, names and texts before what refers to them, and then, if flush_ns
 * is not 0, a QJ_BLOCK_FLUSH. A slow reader is not waited for, until much has gathered, or `last`.
 * Returns 0 or a negative errno; -ENOMEM if records had no room.
 */
int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns, bool last);

/* Bytes gathered and not yet written. */
size_t stream_pending(const struct stream *stream);

#endif /* QJ_STREAM_H */
