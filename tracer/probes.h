/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The BPF programs: configured, and by the root part loaded and attached, as the plan says. */
#ifndef QJ_PROBES_H
#define QJ_PROBES_H

#include "options.h"

#include "qjoule.skel.h"

struct counters;

struct probes {
	struct qjoule_bpf *skeleton;
	struct counters *counters;
	unsigned cpu_count;
	unsigned cpu_limit; /* CPUs have numbers below this, those included that are offline */
	unsigned ring_count;
	int ring_fds[QJ_MAX_RINGS];
	int stop_fd; /* task iterator of on_stop */
};

/*
 * Loads and attaches everything. On failure says what to do in one line on stderr, returns a
 * negative errno, and leaves nothing attached.
 */
int probes_attach(struct probes *probes, const struct options *options, const struct qj_cpu *cpus,
		  unsigned cpu_count);

/* Before the last records are taken: has threads tell of the queries they still serve. */
void probes_tell_open_queries(struct probes *probes);

/*
 * Frees what probes_attach() made; fine after a failed one. The root part detaches when our socket
 * to it is closed, or when attaching fails.
 */
void probes_detach(struct probes *probes);

#endif /* QJ_PROBES_H */
