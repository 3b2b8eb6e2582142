/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The BPF programs for one configuration: opened, given the plan, loaded. */
#ifndef QJ_PROGRAMS_H
#define QJ_PROGRAMS_H

#include "probes.h"

#define KERNEL_BTF "/sys/kernel/btf/vmlinux"

/*
 * Makes probes->skeleton, for probes->counters, CPUs and rings. Returns 0, or a negative errno
 * after one line on stderr.
 */
int programs_load(struct probes *probes, const struct options *options, const struct qj_cpu *cpus);

/* The servers' programs on reads and writes of sockets: each on a tracepoint, or on 3 functions. */
#define X(name) +4
enum {
	PROGRAMS_OF_TRAFFIC = 0 QJ_PROGRAM_NAMES(X)
};
#undef X
struct bpf_program *programs_of_traffic(struct qjoule_bpf *skeleton, unsigned number);

struct bpf_program *programs_of_role(struct qjoule_bpf *skeleton, enum probe_role role);

/* Prints the error on stderr; returns `err`, a negative errno. */
int programs_complain(const char *what, int err);

#endif /* QJ_PROGRAMS_H */
