/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The registry: what there is to be known of each energy source. */
#ifndef QJ_ENERGY_REGISTRY_H
#define QJ_ENERGY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "source.h"

struct energy_kind {
	const char *name; /* as in a spec, in traces and on screens */
	enum qj_grade grade;
	int (*open)(const char *arg, const struct energy_env *env, struct energy_source **out,
		    struct energy_why *why);
	const char *default_arg; /* NULL: the spec must give one; "": it takes none */
	const char *usage;
	/* What `auto` opens it with, NULL if it is not to be considered. No function: not `auto`'s.
	 */
	const char *(*auto_arg)(const struct energy_env *env);
	bool must_move;	    /* `auto` takes it only if a package's counter is seen to move */
	bool rare;	    /* few machines have one: `auto` says nothing of there being none */
	const char *hint;   /* what to do if there is no such source (ENOENT) */
	const char *denied; /* what to do if it may not be opened */
};

/* In the order in which `auto` tries them. */
extern const struct energy_kind *const energy_kinds[];
extern const size_t energy_kind_count;

extern const struct energy_kind energy_powercap, energy_perf, energy_hwmon, energy_host,
    energy_estimated, energy_replay, energy_none;

#endif /* QJ_ENERGY_REGISTRY_H */
