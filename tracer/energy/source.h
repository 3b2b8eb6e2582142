/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The interface of an energy source, and shared helpers; used by no other code. */
#ifndef QJ_ENERGY_SOURCE_H
#define QJ_ENERGY_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "energy.h"

/* RAPL counters move about once per millisecond, on Intel and on AMD. */
#define RAPL_PERIOD_NS 1000000

/* Advice if RAPL is not available. */
#define ENERGY_NO_RAPL "modprobe intel_rapl_msr, or in a VM use --energy auto or estimated"

/* A source embeds struct energy_source as its first member. */
struct energy_ops {
	/* Fills out[i] with t_ns, half_width_ns, raw and status; the caller fills the rest. */
	void (*read)(struct energy_source *source, struct qj_energy *out);
	void (*close)(struct energy_source *source);
};

/* A line under construction. An overlong line ends in "..."; control characters become '?'. */
struct energy_why {
	char *text;
	size_t room;
	size_t used;
};

void why_add(struct energy_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For errors: appends to `why` and returns the negative errno. */
int why_fail(struct energy_why *why, int negative_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Opens the counters of single cores at `sysfs` for a source. Returns 0, or a negative errno and
 * mostly a reason in `why`; -ENOENT: there is no such PMU.
 */
int cores_open(struct energy_source *source, const char *sysfs, const struct energy_env *env,
	       struct energy_why *why);

/* Accepts NULL. */
void cores_free(struct energy_cores *cores);

/* Adds a domain and returns it; NULL if there is no room. */
struct qj_domain *energy_add_domain(struct energy_source *source, unsigned package,
				    const char *name, double unit_j, uint64_t range);

/* Adds a hardware counter's domain; `period_ns`: how often it moves, 0 if not known. */
struct qj_domain *energy_add_counter(struct energy_source *source, unsigned package,
				     const char *name, double unit_j, uint64_t range,
				     uint64_t period_ns);

bool energy_has_package(const struct energy_env *env, unsigned package);
unsigned energy_package_cpus(const struct energy_env *env, unsigned package);

/* Checks that every package or die has a counter: otherwise joules would silently be missing. */
int energy_check_packages(const struct energy_source *source, const struct energy_env *env,
			  struct energy_why *why);

/* Reads a file's text without its newline. Returns its length or a negative errno; never blocks. */
int energy_read_text(int dir_fd, const char *path, char *text, size_t room);

/* energy_read_text() for an open file. */
int energy_read_fd(int fd, char *text, size_t room);

/* Parses decimal digits, then nothing but white space. Returns 0, -EINVAL or -ERANGE. */
int energy_parse_u64(const char *text, uint64_t *value);

static inline uint64_t energy_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The reading lies between two clock readings: stores their middle, and half their distance. */
static inline void energy_stamp(struct qj_energy *out, uint64_t before_ns, uint64_t after_ns)
{
	uint64_t half_ns = (after_ns - before_ns) / 2;

	out->t_ns = before_ns + half_ns;
	out->half_width_ns = half_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)half_ns;
}

/* One energy source. */
struct energy_kind {
	const char *name; /* as in specs, traces and on screens */
	enum qj_grade grade;
	int (*open)(const char *arg, const struct energy_env *env, struct energy_source **out,
		    struct energy_why *why);
	const char *default_arg; /* NULL: the spec must give one; "": takes no argument */
	const char *usage;
	/* The argument that `auto` opens it with; NULL: skip it. No function: not for `auto`. */
	const char *(*auto_arg)(const struct energy_env *env);
	bool must_move;	    /* `auto` takes it only if a package's counter moves */
	bool rare;	    /* few machines have one: `auto` does not mention its absence */
	const char *hint;   /* what to do if there is no such source (ENOENT) */
	const char *denied; /* what to do if permission is denied */
};

/* In the order in which `auto` tries them. */
extern const struct energy_kind *const energy_kinds[];
extern const size_t energy_kind_count;

extern const struct energy_kind energy_powercap, energy_perf, energy_hwmon, energy_host,
    energy_estimated, energy_replay, energy_none;

#endif /* QJ_ENERGY_SOURCE_H */
