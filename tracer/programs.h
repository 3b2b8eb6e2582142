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

struct bpf_program *programs_of_role(struct qjoule_bpf *skeleton, enum probe_role role);

/* Prints the error on stderr; returns `err`, a negative errno. */
int programs_complain(const char *what, int err);

#endif /* QJ_PROGRAMS_H */
