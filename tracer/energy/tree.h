/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Counters of a powercap tree, from the kernel or filled by a hypervisor. */
#ifndef QJ_ENERGY_TREE_H
#define QJ_ENERGY_TREE_H

#include "source.h"

struct energy_tree {
	uint64_t period_ns; /* how often its counters move; 0: not known */
	bool nameless;	    /* zones may lack a name and have a period, and counters lack a range */
};

int energy_tree_open(const char *root, const struct energy_env *env, const struct energy_tree *tree,
		     struct energy_source **out, struct energy_why *why);

#endif /* QJ_ENERGY_TREE_H */
