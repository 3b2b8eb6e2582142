/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Energy sources, behind one small interface.
 *
 * A source provides raw counters. The model computes differences modulo the range and interprets
 * resets and stopped counters, so a recorded trace can be evaluated again.
 *
 * The sources are files in this directory; open.c lists them. A spec is NAME[:ARGUMENT], or
 * `auto`: the first of the candidates for `auto` that opens.
 *
 * energy_open() opens everything while privileges are still available: files of powercap have mode
 * 0400, and permission is checked at open. After that, energy_read() makes no system call but
 * clock_gettime, pread64 and read (and those of env->busy_ns); it allocates and formats nothing.
 */
#ifndef QJ_ENERGY_H
#define QJ_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "qjoule.h"

#define ENERGY_MAX_DOMAINS 64
#define ENERGY_WHY_BYTES   192 /* room for every `why`, as in struct qj_hello */
#define ENERGY_BUSY_FAILED UINT64_MAX

/* The machine's facts for sources. It must outlive the source. */
struct energy_env {
	/* Topology. `package` is physical_package_id, the number in names of powercap zones. */
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	const uint16_t *dies; /* the die of each CPU; NULL: no package has several */
	/*
	 * Counters are of packages even if the kernel shows each of them once per die. It does so
	 * on AMD since commit 63edbaa48a57 (Linux 6.9) until rapl_msrs_are_pkg_scope() of 6.12.
	 */
	bool of_packages;
	/* Counters of single cores are opened beside those of packages, if there are any. */
	bool single_cores;
	bool amd; /* the processor has such counters, even if the kernel does not expose them */
	/*
	 * Busy CPU time, summed over the CPUs of one package, since any fixed moment;
	 * ENERGY_BUSY_FAILED if unknown. `estimated` needs it and calls it only in its reads.
	 */
	uint64_t (*busy_ns)(void *ctx, unsigned package);
	void *ctx;
	/* Powercap tree for `auto`; NULL: the system's tree. */
	const char *powercap_root;
	const char *perf_sysfs;
	const char *hwmon_root;
	/* Tree of `host` for `auto`; NULL: not considered. */
	const char *host_root;
	const char *curve;	  /* of `estimated`: see its usage */
	const char *curve_label;  /* where the curve comes from, for `why` */
	const char *curve_errors; /* "E[,DRAM[,REST]]": relative 95 % errors of its series */
};

struct energy_ops;
struct appeared;
struct energy_cores;

struct energy_source {
	const struct energy_ops *ops;
	const char *name;
	const char *powercap_root;  /* the tree of a source that reads powercap, else NULL */
	const char *pmu;	    /* the directory of the source's PMU, else NULL */
	struct appeared *appeared;  /* zones that appeared since then; NULL: not tracked */
	struct energy_cores *cores; /* counters of single cores; NULL: there are none */
	enum qj_grade grade;
	unsigned domain_count;
	/*
	 * Names are package, core, uncore, dram, psys, rest. A package of several dies has several
	 * domains with the same package and name: add up their energies.
	 */
	struct qj_domain domains[ENERGY_MAX_DOMAINS];
};

/*
 * Opens the source that `spec` names. `why` always gets one line: the opened source (with `auto`
 * also why no better source was), or on failure what to do about it.
 *
 * `auto` takes powercap or perf only if a package's counter moves within 100 ms: a virtual machine
 * may show a PMU `power` whose counters stay at zero.
 *
 * Returns 0, or a negative errno with *out NULL: -EINVAL (spec or content malformed), -ENOENT (no
 * such counters here), -EACCES (needs root), or the failing system call's error.
 */
int energy_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		char *why, size_t why_len);

/*
 * Reads every domain once: out[i] belongs to source->domains[i]. A failed read has its errno in
 * out[i].status. Returns how many failed.
 */
unsigned energy_read(struct energy_source *source, struct qj_energy *out);

/*
 * Reports powercap zones that appeared since the last call, after a package was switched on or a
 * module loaded: `found` gets their names, and has room for ENERGY_MAX_DOMAINS. They are never
 * read, because opening files is no longer possible. Makes no system call but getdents64 and lseek.
 */
unsigned energy_appeared(struct energy_source *source, struct qj_domain *found);

/*
 * Returns the counter of a single core, numbered from 0: a domain `one_core`, numbered after the
 * source's own, whose `die` is the lowest CPU of the core. Its energy is part of the package's.
 * NULL: no such core.
 */
const struct qj_domain *energy_core(const struct energy_source *source, unsigned number);

/* Reads an existing core's counter. It interrupts a busy CPU, and wakes a sleeping one. */
void energy_read_core(struct energy_source *source, unsigned number, struct qj_energy *out);

/* Prints a line per source, separated by tabs: name, grade, "auto" or "named", spec syntax. */
void energy_list(FILE *out);

/* Accepts NULL. */
void energy_close(struct energy_source *source);

#endif /* QJ_ENERGY_H */
