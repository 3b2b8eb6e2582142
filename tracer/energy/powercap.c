// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The sources that read a powercap tree: `powercap` and `host`. */
#include "powercap.h"

/* `powercap`: RAPL counters through sysfs, for Intel and AMD packages alike. */

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

/*
 * `host`: a powercap tree that a hypervisor fills for its guest.
 *
 * It consists of plain files: an energy_uj that only grows, often without a name or a range. The
 * values are what the host *apportioned* to this guest by the guest's CPU time. That is an
 * estimate, whatever its basis, hence the grade. A zone's file period_ms says how often the host
 * writes; without it that is not known. A reading of an empty file fails with ENODATA: a file that
 * is being written, or a tree whose writer has lost its host.
 */

static int host_open(const char *root, const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	static const struct energy_tree tree = {.nameless = true};

	return energy_tree_open(root, env, &tree, out, why);
}

static const char *host_auto(const struct energy_env *env)
{
	return env->host_root;
}

const struct energy_kind energy_host = {
    .name = "host",
    .grade = QJ_GRADE_ESTIMATED,
    .open = host_open,
    .usage = "host:ROOT",
    .auto_arg = host_auto,
    .hint = "mount the tree that the hypervisor exports, or use --energy auto",
};
