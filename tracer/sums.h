/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view: windows of sums, drained from the kernel (bpf/core/sums.bpf.h), and idle times of
 * cores and packages.
 */
#ifndef QJ_SUMS_H
#define QJ_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared.h"
#include "probes.h"
#include "stream.h"

/* ---- sums.c: rows of sums ---- */

struct sums;

struct sums *sums_new(const struct probes *probes, struct stream *stream, const struct qj_cpu *cpus,
		      unsigned cpu_count);
void sums_free(struct sums *sums);

/* Early kernels: adds a program's increment. Call it for all of a window before sums_drain(). */
void sums_received(struct sums *sums, const struct qj_ring_sum *record);

/* The first window begins at t_ns. */
void sums_begin(struct sums *sums, uint64_t t_ns);

/* From t_ns on the programs sum into the next window. */
void sums_next_window(struct sums *sums, uint64_t t_ns);

/*
 * Moves the sums of the previous window, from t0_ns to t1_ns, into the stream. Call it once every
 * slice that was running at sums_next_window() has been closed. Returns 0 or a negative errno.
 */
int sums_drain(struct sums *sums, uint64_t t0_ns, uint64_t t1_ns);

/* Fills a row's record, without its sums. */
static inline struct qj_aggregate sums_aggregate(const struct qj_sums_key *key, uint64_t t0_ns,
						 uint64_t t1_ns)
{
	return (struct qj_aggregate){
	    .t0_ns = t0_ns,
	    .t1_ns = t1_ns,
	    .shape = key->shape,
	    .tags = key->tags,
	    .naming = key->naming,
	    .tgid = key->tgid,
	    .pid = key->pid,
	    .package = key->package,
	    .server = key->server,
	    .owner_kind = key->owner_kind,
	};
}

/* ---- idle_times.c: idle times per window, from memory shared with the programs ---- */

struct idle_times;

/* NULL: out of memory. */
struct idle_times *idle_times_new(struct qjoule_bpf *skeleton, struct stream *stream,
				  const struct qj_cpu *cpus, unsigned cpu_count);
void idle_times_free(struct idle_times *times);

/* Ends a window and begins the next one. */
void idle_times_next_window(struct idle_times *times, uint64_t t_ns);

/*
 * Writes the idle times of the window before the last idle_times_next_window(), number `epoch`, to
 * the stream: how long each package was awake, and tails that no row of sums has.
 */
void idle_times_drain(struct idle_times *times, uint32_t epoch, uint64_t t0_ns, uint64_t t1_ns);

#endif /* QJ_SUMS_H */
