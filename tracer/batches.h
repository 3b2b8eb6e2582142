/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Batches of segments, from the rings and from CPUs that fell idle (bpf/core/batch.bpf.h). */
#ifndef QJ_BATCHES_H
#define QJ_BATCHES_H

#include "shared.h"
#include "stream.h"

struct batches;

/* `map_fd`: the array of struct qj_batch, `cpus` of them. NULL: no memory. */
struct batches *batches_new(int map_fd, unsigned cpus, struct stream *stream);
void batches_free(struct batches *batches);

/* A batch that came through a ring: into the stream, but for what has been taken already. */
void batches_received(struct batches *batches, const struct qj_batch *batch);

/* Takes what waits in the batches of all CPUs. */
void batches_take(struct batches *batches);

#endif /* QJ_BATCHES_H */
