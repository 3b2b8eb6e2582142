/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The BPF programs: configured, then loaded and attached by the root part as the plan requires. */
#ifndef QJ_PROBES_H
#define QJ_PROBES_H

#include <stdbool.h>

#include "options.h"
#include "qjoule.skel.h"

struct counters;

struct probes {
	struct qjoule_bpf *skeleton;
	struct counters *counters;
	unsigned cpu_count;
	unsigned cpu_limit; /* all CPU numbers are below this, including offline CPUs */
	bool early;	    /* the programs are those of early kernels: early_kernel() */
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

/* Makes threads report their unfinished queries; called before the last records are taken. */
void probes_tell_open_queries(struct probes *probes);

/*
 * Frees what probes_attach() made; may be called after a failed one. The root part detaches when
 * our socket to it is closed, or when attaching fails.
 */
void probes_detach(struct probes *probes);

/* ---- programs.c: the programs for one configuration ---- */

#define KERNEL_BTF "/sys/kernel/btf/vmlinux"

/*
 * Makes probes->skeleton, for probes->counters, CPUs and rings. Returns 0, or a negative errno
 * after one line on stderr.
 */
int programs_load(struct probes *probes, const struct options *options, const struct qj_cpu *cpus);

/*
 * The programs on reads and writes of sockets: of each server one for a tracepoint, and one for
 * each of 3 functions; then those that are attached to the two tracepoints.
 */
#define X(name, kind) +4
enum {
	PROGRAMS_OF_TRAFFIC = 2 QJ_PROGRAM_NAMES(X)
};
#undef X
struct traffic_program {
	struct bpf_program *program;
	uint32_t kind; /* called for threads of these servers; 0: it is attached itself */
};
struct traffic_program programs_of_traffic(struct qjoule_bpf *skeleton, unsigned number);

struct bpf_program *programs_of_role(struct qjoule_bpf *skeleton, enum probe_role role);

/* Prints the error on stderr; returns `err`, a negative errno. */
int programs_complain(const char *what, int err);

/* ---- loading.c: has the root part load the programs, in the right variant ---- */

/*
 * Has the programs loaded with the configuration of `probes->skeleton`, which is opened but not
 * loaded. Its `bss` and `probes->batches_fd` then are the loaded ones, and so are the tracer's
 * other maps, except on early kernels. Returns 0 or a negative errno.
 */
int loading_load(struct probes *probes, bool verbose);

/*
 * Returns true if the kernel lacks bpf_loop() (Linux 5.17), or maps that processes without rights
 * may use (5.19), which the common variant needs. Tries both; call it without rights.
 */
bool early_kernel(void);

/*
 * counters.c: hardware counters, one perf event per counter and CPU, read by the BPF programs.
 * Cycles are core cycles while the core is not halted (PERF_COUNT_HW_CPU_CYCLES,
 * perf_event_open(2)): divided by a thread's CPU time they give the frequency at which it ran.
 *
 * The events do not form a group. A group counts all or nothing: if another event pins one counter
 * (as the NMI watchdog does), the group may never run. On most CPUs cycles and instructions have
 * counters of their own; in a group they would have to take turns together with the misses. Each
 * event is scaled by the time that it ran itself (bpf/core/counted.h).
 */

/* Names in options and messages. Further counters are called `more` plus their number, from 0. */
extern const char *const counter_names[QJ_COUNTERS];

/*
 * Opens the counters that the options name. If a CPU lacks one, a line on stderr reports it, and
 * the segments of that CPU do not have the counter. A counter that no CPU has gets no bit in
 * counters_mask(). NULL: no memory.
 */
struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count, bool early);
void counters_close(struct counters *counters);

/* Bit i: counter i is read on at least some CPUs. The further counters follow the others. */
unsigned counters_mask(const struct counters *counters);

/*
 * Puts the events into the programs' maps. Returns 0, or a negative errno after a line on stderr.
 */
int counters_give(const struct counters *counters, struct qjoule_bpf *skeleton);

#endif /* QJ_PROBES_H */
