/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_TOPOLOGY_H
#define QJ_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "shared.h"

#define TOPOLOGY_DIR "/sys/devices/system/cpu"

/*
 * Online CPUs with their package, core and sibling, from DIR/cpu (TOPOLOGY_DIR). Returns how many,
 * or a negative errno. A CPU without topology information is its own core of package 0.
 */
int topology_read(const char *dir, struct qj_cpu cpus[QJ_MAX_CPUS]);

/* The die of each CPU, as the kernel numbers it. Returns whether any package has several. */
bool topology_dies(const char *dir, const struct qj_cpu *cpus, unsigned count,
		   uint16_t dies[QJ_MAX_CPUS]);

/* Whether AMD or Hygon made the CPUs. */
bool topology_amd(void);

/*
 * Chains the CPUs of each core into a ring: next[cpu] is the next CPU, or cpu itself if it is
 * alone. Returns how many CPUs the largest core has.
 */
unsigned topology_rings(const struct qj_cpu *cpus, unsigned count, uint16_t next[QJ_MAX_CPUS]);

/* The lowest CPU of each CPU's core and package; unknown CPUs are alone. */
void topology_firsts(const struct qj_cpu *cpus, unsigned count, uint16_t of_core[QJ_MAX_CPUS],
		     uint16_t of_package[QJ_MAX_CPUS]);

#endif /* QJ_TOPOLOGY_H */
