/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The BPF programs: configured, then loaded and attached by the root part as the plan requires. */
#ifndef QJ_PROBES_H
#define QJ_PROBES_H

#include "options.h"

#include "qjoule.skel.h"

struct counters;

struct probes {
	struct qjoule_bpf *skeleton;
	struct counters *counters;
	unsigned cpu_count;
	unsigned cpu_limit; /* all CPU numbers are below this, including offline CPUs */
	bool early;	    /* the programs are those of early kernels (early.h) */
	unsigned ring_count;
	unsigned ring_bytes; /* of each */
	int batches_fd;
	int ring_fds[QJ_MAX_RINGS];
	int stop_fd; /* task iterator of on_stop */
};

/*
 * Loads and attaches everything. On failure prints what to do in one line on stderr, returns a
 * negative errno, and leaves nothing attached.
 */
int probes_attach(struct probes *probes, const struct options *options, const struct qj_cpu *cpus,
		  unsigned cpu_count);

/* Called before the last records are taken: threads report the queries that they still serve. */
void probes_tell_open_queries(struct probes *probes);

/*
 * Frees what probes_attach() made; may be called after a failed one. The root part detaches when
 * our socket to it is closed, or when attaching fails.
 */
void probes_detach(struct probes *probes);

#endif /* QJ_PROBES_H */
