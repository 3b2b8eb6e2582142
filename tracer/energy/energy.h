/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Energy sources: where joules come from, behind one small interface.
 *
 * A source offers raw counters. Differences, modulo the range, and what a reset or a stopped
 * counter means are the model's business, so that a recorded trace can be judged again.
 *
 * Each source is a file beside this one; registry.c lists them. A spec is NAME[:ARGUMENT], or
 * `auto`: the first that opens of those that the registry has for it.
 *
 * Everything is opened by energy_open(), while there are still privileges: files of powercap are
 * mode 0400 and permission is checked at open. energy_read() then makes no system call but
 * clock_gettime, pread64 and read (and what env->busy_ns makes), allocates and formats nothing.
 */
#ifndef QJ_ENERGY_H
#define QJ_ENERGY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "qjoule.h"

#define ENERGY_MAX_DOMAINS 64
#define ENERGY_WHY_BYTES   192 /* room that every `why` fits in, as in struct qj_hello */
#define ENERGY_BUSY_FAILED UINT64_MAX

/* What a source may need to know about the machine. It must outlive the source. */
struct energy_env {
	/* Topology. `package` is physical_package_id, the number in names of powercap zones. */
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	/*
	 * CPU time spent not idle, summed over the CPUs of one package, since any fixed moment;
	 * ENERGY_BUSY_FAILED if it cannot be told. Needed by `estimated`, called only by its reads.
	 */
	uint64_t (*busy_ns)(void *ctx, unsigned package);
	void *ctx;
	/* For `auto`; NULL: the system's tree, ... */
	const char *powercap_root;
	const char *perf_sysfs;
	const char *hwmon_root;
	/* ... or not considered. */
	const char *host_root;
	const char *curve;	 /* "W0,W10,W50,W100[,DRAM]" of `estimated` */
	const char *curve_label; /* where the curve is from, for `why` */
};

struct energy_ops;

struct energy_source {
	const struct energy_ops *ops;
	const char *name;
	enum qj_grade grade;
	unsigned domain_count;
	/*
	 * Names are package, core, uncore, dram, psys. A package of several dies has several
	 * domains with one package and one name: their energies add up.
	 */
	struct qj_domain domains[ENERGY_MAX_DOMAINS];
};

/*
 * Opens the source that `spec` names. `why` always gets one line: what was opened (with `auto` also
 * why nothing better was), or on failure what to do about it.
 *
 * `auto` takes powercap or perf only if a package's counter moves within 100 ms: a virtual machine
 * may show a PMU `power` whose counters stay at zero.
 *
 * Returns 0, or a negative errno with *out NULL: -EINVAL (spec or content malformed), -ENOENT (no
 * such counters here), -EACCES (needs root), or what the failing system call said.
 */
int energy_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		char *why, size_t why_len);

/*
 * Reads every domain once: out[i] is about source->domains[i]. A read that fails has its errno in
 * out[i].status. Returns how many failed.
 */
unsigned energy_read(struct energy_source *source, struct qj_energy *out);

/* A line for each source: name, grade, "auto" or "named", how its spec is written; by tabs. */
void energy_list(FILE *out);

/* NULL is fine. */
void energy_close(struct energy_source *source);

#endif /* QJ_ENERGY_H */
