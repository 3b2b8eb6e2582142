/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Moves data from rings, maps and energy counters to the stream, window by window. */
#ifndef QJ_PUMP_H
#define QJ_PUMP_H

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

#endif /* QJ_PUMP_H */
