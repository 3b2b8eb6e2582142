/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The registry: what is known about each energy source. */
#ifndef QJ_ENERGY_REGISTRY_H
#define QJ_ENERGY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "source.h"

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

#endif /* QJ_ENERGY_REGISTRY_H */
