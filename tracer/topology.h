/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_TOPOLOGY_H
#define QJ_TOPOLOGY_H

#include "shared.h"

/*
 * Online CPUs with their package, core and sibling, from DIR/cpu (/sys/devices/system/cpu).
 * Returns how many, or a negative errno. A CPU whose topology is not told is its own core of
 * package 0.
 */
int topology_read(const char *dir, struct qj_cpu cpus[QJ_MAX_CPUS]);

#endif /* QJ_TOPOLOGY_H */
