/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The spool: a file that takes the bulk of a recording as it is, to be converted afterwards. It is
 * a sequence of frames (struct qj_frame of bpf/qjoule.h) and never contains a byte that a client
 * sent.
 */
#ifndef QJ_SPOOL_H
#define QJ_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spool;

/*
 * Writes to `fd`, a regular file open for writing, up to `limit` bytes. Allocates all memory that
 * it will need. Returns NULL if there is none.
 */
struct spool *spool_new(int fd, uint64_t limit, bool compress);
void spool_free(struct spool *spool);

/* Adds bytes to the next frame, which must stay as they are until it is written. */
void spool_add(struct spool *spool, const void *data, size_t bytes);

/*
 * Writes what was added as one frame. Returns 0 or a negative errno: -EFBIG if the frame would
 * exceed the limit. After an error nothing more is written, and further calls return the same
 * error.
 */
int spool_write(struct spool *spool, uint64_t now_ns);

/* Frames and bytes written so far. */
uint64_t spool_frames(const struct spool *spool);
uint64_t spool_bytes(const struct spool *spool);

#endif /* QJ_SPOOL_H */
