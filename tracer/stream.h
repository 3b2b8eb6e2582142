/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The tracer's output: records collected by kind, written as blocks (bpf/qjoule.h, framing). */
#ifndef QJ_STREAM_H
#define QJ_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qjoule.h"

struct stream;

struct spool;

/* Writes to `fd`. If `spool` is not NULL, bulk records go there instead. */
struct stream *stream_new(int fd, struct spool *spool);
void stream_free(struct stream *stream);

/* Collects one record of a kind with a fixed size. */
void stream_add(struct stream *stream, enum qj_block_kind kind, const void *record, size_t bytes);

/* Adds a record followed by text as a block of its own, padded to 8 bytes. */
void stream_add_text(struct stream *stream, enum qj_block_kind kind, const void *record,
		     size_t bytes, const void *text, size_t text_bytes);

/*
 * Writes all collected records, names and texts before what refers to them, and then, if flush_ns
 * is not 0, a QJ_BLOCK_FLUSH. Does not wait for a slow reader unless much has piled up, or `last`.
 * Returns 0 or a negative errno; -ENOMEM if there was no room for records.
 */
int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns, bool last);

/* Bytes collected and not yet written. */
size_t stream_pending(const struct stream *stream);

#endif /* QJ_STREAM_H */
