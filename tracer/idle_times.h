/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Live view: idle times of cores and packages per window, from shared memory (tails.bpf.h). */
#ifndef QJ_IDLE_TIMES_H
#define QJ_IDLE_TIMES_H

#include "shared.h"

#include "qjoule.skel.h"
#include "stream.h"

struct idle_times;

/* NULL: out of memory. */
struct idle_times *idle_times_new(struct qjoule_bpf *skeleton, struct stream *stream,
				  const struct qj_cpu *cpus, unsigned cpu_count);
void idle_times_free(struct idle_times *times);

/* A window ends and the next one begins. */
void idle_times_next_window(struct idle_times *times, uint64_t t_ns);

/*
 * Moves what belongs to the window before the last idle_times_next_window(), number `epoch`, into
 * the stream: how long each package was awake, and tails that no row of sums has.
 */
void idle_times_drain(struct idle_times *times, uint32_t epoch, uint64_t t0_ns, uint64_t t1_ns);

#endif /* QJ_IDLE_TIMES_H */
