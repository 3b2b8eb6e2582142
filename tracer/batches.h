/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Batches of segments, from the rings and from idle CPUs (bpf/core/batch.bpf.h). */
#ifndef QJ_BATCHES_H
#define QJ_BATCHES_H

#include "shared.h"
#include "stream.h"

struct batches;

/* `map_fd`: the array of struct qj_batch with `cpus` entries. NULL: no memory. */
struct batches *batches_new(int map_fd, unsigned cpus, struct stream *stream);
void batches_free(struct batches *batches);

/* Adds a batch from a ring to the stream, except what was already taken. */
void batches_received(struct batches *batches, const struct qj_batch *batch);

/* Takes what waits in the batches of all CPUs. */
void batches_take(struct batches *batches);

#endif /* QJ_BATCHES_H */
