/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The tracer's output. The stream has records collected by kind, written as blocks (bpf/qjoule.h,
 * framing). The spool is a file that takes the bulk of a recording as it is, to be converted
 * afterwards: a sequence of frames (struct qj_frame of bpf/qjoule.h), which never contains a byte
 * that a client sent.
 */
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

/* Adds a record followed by text as a separate block, padded to 8 bytes. */
void stream_add_text(struct stream *stream, enum qj_block_kind kind, const void *record,
		     size_t bytes, const void *text, size_t text_bytes);

/*
 * Writes all collected records, names and texts before records that refer to them, and then, if
 * flush_ns is not 0, a QJ_BLOCK_FLUSH. Waits for a slow reader only if much has piled up, or
 * `last`. Returns 0 or a negative errno; -ENOMEM if there was no room for records.
 */
int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns, bool last);

/* Bytes collected and not yet written. */
size_t stream_pending(const struct stream *stream);

/* More segments of a ring than anybody needs. */
#define SPOOL_FILES 32

/*
 * Writes to regular files that are open for writing, up to `limit` bytes in all. Several files are
 * the segments of a ring: once one holds its share of the bytes, or `turn_ns` of records, the next
 * is emptied and written, and the oldest records are gone. Allocates all memory that it will need.
 * Returns NULL without memory.
 */
struct spool *spool_new(const int *fds, unsigned files, uint64_t limit, uint64_t turn_ns,
			bool compress);
void spool_free(struct spool *spool);

/* Adds bytes to the next frame; they must not change until it is written. */
void spool_add(struct spool *spool, const void *data, size_t bytes);

/*
 * Returns true if the next frame, of about `bytes`, belongs into the ring's next segment. Empties
 * that segment then: the caller must begin it with the announcement. `now_ns`: time of the frame.
 */
bool spool_rotate(struct spool *spool, uint64_t now_ns, size_t bytes);

/*
 * Writes the added bytes as one frame. Returns 0 or a negative errno: -EFBIG if the frame would
 * exceed the limit. After an error nothing more is written, and calls return the same error.
 */
int spool_write(struct spool *spool, uint64_t now_ns);

/* Frames and bytes written so far, also those that the ring has overwritten. */
uint64_t spool_frames(const struct spool *spool);
uint64_t spool_bytes(const struct spool *spool);

/* The current segment, from 1 in ascending order; 0: the spool is no ring. */
uint64_t spool_segment(const struct spool *spool);

#endif /* QJ_STREAM_H */
