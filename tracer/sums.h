/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Live view: windows of sums, drained from the kernel (bpf/core/sums.bpf.h). */
#ifndef QJ_SUMS_H
#define QJ_SUMS_H

#include "shared.h"

#include "qjoule.skel.h"
#include "stream.h"

struct sums;

struct sums *sums_new(struct qjoule_bpf *skeleton, struct stream *stream, const struct qj_cpu *cpus,
		      unsigned cpu_count);
void sums_free(struct sums *sums);

/* From t_ns on the programs sum into the next window. */
void sums_next_window(struct sums *sums, uint64_t t_ns);

/*
 * Moves the sums of the previous window, from t0_ns to t1_ns, into the stream. Call it once every
 * slice that was running at sums_next_window() has been closed. Returns 0 or a negative errno.
 */
int sums_drain(struct sums *sums, uint64_t t0_ns, uint64_t t1_ns);

#endif /* QJ_SUMS_H */
