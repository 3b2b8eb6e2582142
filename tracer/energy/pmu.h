/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reads sysfs' description of a PMU with energy counters, for sources that open its events. */
#ifndef QJ_ENERGY_PMU_H
#define QJ_ENERGY_PMU_H

#include "source.h"

/* The packages' PMU. That of single cores has the same path with `_core` at the end. */
#define PMU_SYSFS "/sys/bus/event_source/devices/power"

/* All return a negative errno on failure, with the reason in `why`. `sysfs_fd`: its directory. */

int pmu_type(int sysfs_fd, uint32_t *type, struct energy_why *why);

/* Returns the event's number; -ENOENT, without a reason, if there is no such event. */
int pmu_config(int sysfs_fd, const char *event, uint64_t *config, struct energy_why *why);

/* Returns the joules of one count. */
int pmu_unit(int sysfs_fd, const char *event, double *unit_j, struct energy_why *why);

/* Finds the CPUs on which the events are to be opened, at most `room`; returns how many. */
int pmu_cpus(int sysfs_fd, const struct energy_env *env, const struct qj_cpu **cpus, unsigned room,
	     struct energy_why *why);

/* Reads an event's counter; `before_ns`: the time just before. */
void pmu_read(int event_fd, uint64_t before_ns, struct qj_energy *out);

#endif /* QJ_ENERGY_PMU_H */
