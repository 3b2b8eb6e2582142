/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reads BPF ring buffers through their shared memory alone: libbpf's reader asks bpf(2) about each
 * map, which early kernels refuse to a process without rights.
 */
#ifndef QJ_RINGS_H
#define QJ_RINGS_H

#include <stddef.h>

struct rings;

/* Takes one record. A negative result ends rings_consume(); the record counts as taken. */
typedef int rings_take(void *ctx, void *record, size_t bytes);

/* `fds`: rings of `bytes` each, a power of two pages. NULL if there is no memory. */
struct rings *rings_new(const int *fds, unsigned count, size_t bytes, rings_take *take, void *ctx);
void rings_free(struct rings *rings);

/* Takes all records that are complete. Returns 0, or what `take` returned. */
int rings_consume(struct rings *rings);

#endif /* QJ_RINGS_H */
