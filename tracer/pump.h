/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Moves data from rings, maps and energy counters to the stream, window by window. The functions
 * below pump_finish() are its parts, in batches.c.
 */
#ifndef QJ_PUMP_H
#define QJ_PUMP_H

#include <stddef.h>
#include <stdint.h>

#include "energy/energy.h"
#include "options.h"
#include "probes.h"
#include "stream.h"

struct pump;

/* The arguments must outlive the pump. NULL: no memory. */
struct pump *pump_new(struct probes *probes, struct energy_source *energy, struct stream *stream,
		      const struct options *options, const struct qj_cpu *cpus, unsigned cpu_count);
void pump_free(struct pump *pump);

/* Writes the stream's first records. */
int pump_hello(struct pump *pump, const char *energy_reason);

/* Processes one window: reads the energy counters, then takes what the programs recorded. */
int pump_window(struct pump *pump);

/* Processes the last window: closes running slices and ends the stream. `reason`: 0 or an errno. */
int pump_finish(struct pump *pump, int reason);

/* ---- segments, from the rings and from idle CPUs (bpf/core/batch.bpf.h) ---- */

struct batches;

/* `map_fd`: the array of struct qj_batch with `cpus` entries. NULL: no memory. */
struct batches *batches_new(int map_fd, unsigned cpus, struct stream *stream);
void batches_free(struct batches *batches);

/* Adds a batch from a ring to the stream, except what was already taken. */
void batches_received(struct batches *batches, const struct qj_batch *batch);

/* Takes what waits in the batches of all CPUs. */
void batches_take(struct batches *batches);

/* ---- steal.c: time that the host of a virtual machine stole from each CPU ---- */

struct steal;

/* Takes over `stat_fd`, of /proc/stat; a negative one cannot be read. NULL: no memory. */
struct steal *steal_new(int stat_fd);
void steal_free(struct steal *steal);

/* Reads the counters anew. */
void steal_read(struct steal *steal);

/* Stolen time of a CPU (below QJ_MAX_CPUS) since the first reading; QJ_STEAL_UNKNOWN. */
uint64_t steal_ns(const struct steal *steal, unsigned cpu);

/* ---- busy and idle time of each CPU, counted apart from the segments ---- */

/* Adds a record per CPU with its times up to now. */
void cpu_times_report(const struct probes *probes, struct steal *steal, struct stream *stream,
		      const struct qj_cpu *cpus, unsigned cpu_count);

/* Busy CPU time of one package, for energy sources that estimate (struct energy_env). */
uint64_t cpu_times_busy_ns(void *probes, unsigned package);

/*
 * Reads BPF ring buffers only through their shared memory. libbpf's reader asks bpf(2) about each
 * map, which early kernels refuse to a process without rights.
 */
struct rings;

/* Takes one record. A negative result ends rings_consume(); the record counts as taken. */
typedef int rings_take(void *ctx, void *record, size_t bytes);

/* `fds`: rings of `bytes` each, a power of two pages. NULL if there is no memory. */
struct rings *rings_new(const int *fds, unsigned count, size_t bytes, rings_take *take, void *ctx);
void rings_free(struct rings *rings);

/* Takes all records that are complete. Returns 0, or what `take` returned. */
int rings_consume(struct rings *rings);

#endif /* QJ_PUMP_H */
