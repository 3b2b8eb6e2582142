/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which CPUs to load, and how much memory fits into a cache or exceeds it. */
#ifndef QJ_PLACE_H
#define QJ_PLACE_H

#include <sched.h>
#include <stddef.h>

#include "kernels.h"

/* Parses a kernel list such as "0-3,8". Returns the number of CPUs; 0: malformed. */
int cpus_parse(const char *text, cpu_set_t *cpus);

/*
 * Bytes of memory for a kernel on `cpu` while all CPUs in `all` run it. FOOTPRINT_MEMORY is at
 * least four times this CPU's share of the last level cache among them. All together never take
 * more than a quarter of the available memory; if that leaves less than twice the share, *enough is
 * cleared.
 */
size_t place_bytes(enum footprint footprint, int cpu, const cpu_set_t *all, int *enough);

#endif /* QJ_PLACE_H */
