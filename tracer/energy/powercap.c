// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* `powercap`: RAPL counters through sysfs, for Intel and AMD packages alike. */
#include "registry.h"
#include "tree.h"
#include "zones.h"

static int powercap_open(const char *root, const struct energy_env *env, struct energy_source **out,
			 struct energy_why *why)
{
	static const struct energy_tree tree = {.period_ns = RAPL_PERIOD_NS};

	return energy_tree_open(root, env, &tree, out, why);
}

static const char *powercap_auto(const struct energy_env *env)
{
	return env->powercap_root ? env->powercap_root : POWERCAP_ROOT;
}

const struct energy_kind energy_powercap = {
    .name = "powercap",
    .grade = QJ_GRADE_MEASURED,
    .open = powercap_open,
    .default_arg = POWERCAP_ROOT,
    .usage = "powercap[:ROOT]",
    .auto_arg = powercap_auto,
    .must_move = true,
    .hint = ENERGY_NO_RAPL,
};
