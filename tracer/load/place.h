/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which CPUs, and how much memory on each makes a cache too small or large enough. */
#ifndef QJ_PLACE_H
#define QJ_PLACE_H

#include <sched.h>
#include <stddef.h>

#include "kernels.h"

/* A kernel list such as "0-3,8". Returns the number of CPUs, 0 if it is no such list. */
int cpus_parse(const char *text, cpu_set_t *cpus);

/*
 * Bytes of memory for a kernel on `cpu` while `all` run it. FOOTPRINT_MEMORY is at least four times
 * the share of the last level cache that this CPU has among them, but all together never take more
 * than a quarter of what is available; *enough is cleared if that is less than twice that share.
 */
size_t place_bytes(enum footprint footprint, int cpu, const cpu_set_t *all, int *enough);

#endif /* QJ_PLACE_H */
