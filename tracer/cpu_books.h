/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How long each CPU was busy and idle, counted by the programs independently of the segments. */
#ifndef QJ_CPU_BOOKS_H
#define QJ_CPU_BOOKS_H

#include <stdint.h>

#include "stream.h"

struct probes;

/* Adds a record per CPU with its times up to now. */
void cpu_books_report(const struct probes *probes, struct stream *stream, const struct qj_cpu *cpus,
		      unsigned cpu_count);

/* Busy CPU time of one package, for energy sources that estimate (struct energy_env). */
uint64_t cpu_books_busy_ns(void *probes, unsigned package);

#endif /* QJ_CPU_BOOKS_H */
