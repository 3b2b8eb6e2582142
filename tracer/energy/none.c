// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* `none`: no domain at all, so a trace has only CPU time. */
#include <errno.h>
#include <stdlib.h>

#include "registry.h"

static void none_read(struct energy_source *source, struct qj_energy *out)
{
	(void)source;
	(void)out;
}

static void none_close(struct energy_source *source)
{
	free(source);
}

static int none_open(const char *arg, const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	static const struct energy_ops ops = {.read = none_read, .close = none_close};
	struct energy_source *source = calloc(1, sizeof(*source));

	(void)arg;
	(void)env;
	if (!source)
		return why_fail(why, -ENOMEM, "out of memory");
	source->ops = &ops;
	why_add(why, "no energy, only CPU time");
	*out = source;
	return 0;
}

static const char *none_auto(const struct energy_env *env)
{
	(void)env;
	return "";
}

const struct energy_kind energy_none = {
    .name = "none",
    .grade = QJ_GRADE_NONE,
    .open = none_open,
    .default_arg = "",
    .usage = "none",
    .auto_arg = none_auto,
};
