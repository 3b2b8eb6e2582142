// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The list of energy sources, the only place that names them all; chooses one by its spec, or the
 * best one available for `auto`.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pmu.h"
#include "powercap.h"

/* RAPL updates about every millisecond; psys in 1 J units may take several at low power. */
#define PROOF_MS      100
#define PROOF_STEP_MS 5
/* Room for the names of all sources in a message. */
#define NAMES_BYTES 160

/* ---- `none`: no domain at all, so a trace has only CPU time ---- */

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

/* ---- choosing ---- */

const struct energy_kind *const energy_kinds[] = {
    &energy_powercap,  &energy_perf,   &energy_hwmon, &energy_host,
    &energy_estimated, &energy_replay, &energy_none,
};
const size_t energy_kind_count = sizeof(energy_kinds) / sizeof(*energy_kinds);

static int open_kind(const struct energy_kind *kind, const char *arg, const struct energy_env *env,
		     struct energy_source **out, struct energy_why *why)
{
	int error = kind->open(arg, env, out, why);

	if (!error) {
		(*out)->name = kind->name;
		(*out)->grade = kind->grade;
	}
	return error;
}

/*
 * A counter that exists may not count: guests may see a PMU `power` that always reads zero. Zero
 * joules labelled `measured` would be wrong, so a source that the user did not name must be seen to
 * move.
 */
static int prove_moving(struct energy_source *source, struct energy_why *why)
{
	static const struct timespec step = {.tv_nsec = PROOF_STEP_MS * 1000000L};
	struct qj_energy first[ENERGY_MAX_DOMAINS], now[ENERGY_MAX_DOMAINS];

	energy_read(source, first);
	for (int ms = 0; ms < PROOF_MS; ms += PROOF_STEP_MS) {
		nanosleep(&step, NULL);
		energy_read(source, now);
		for (unsigned i = 0; i < source->domain_count; i++)
			if (!strcmp(source->domains[i].name, "package") && !first[i].status &&
			    !now[i].status && now[i].raw != first[i].raw)
				return 0;
	}
	return why_fail(why, -ENODATA, "counters did not move in %d ms", PROOF_MS);
}

/* One step of `auto`. If the source is not taken, the reason goes to `why`. */
static int try_kind(const struct energy_kind *kind, const char *arg, const struct energy_env *env,
		    struct energy_source **out, struct energy_why *why)
{
	char text[ENERGY_WHY_BYTES] = "";
	struct energy_why reason = {.text = text, .room = sizeof(text)};
	int error = open_kind(kind, arg, env, out, &reason);

	if (!error && kind->must_move) {
		reason.used = 0;
		error = prove_moving(*out, &reason);
		if (error) {
			energy_close(*out);
			*out = NULL;
		}
	}
	if (error && !(kind->rare && error == -ENOENT))
		why_add(why, "%s: %s; ", kind->name, text);
	if (error)
		return error;
	if (kind->grade == QJ_GRADE_NONE)
		why_add(why, "%s", text);
	else if (kind == &energy_estimated)
		why_add(why, "using the power curve of %s",
			env->curve_label ? env->curve_label : env->curve);
	else
		why_add(why, "using %s", kind->name);
	return 0;
}

static int auto_open(const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	int error = -ENOENT;

	for (size_t i = 0; error && i < energy_kind_count; i++) {
		const struct energy_kind *kind = energy_kinds[i];
		const char *arg = kind->auto_arg ? kind->auto_arg(env) : NULL;

		if (arg)
			error = try_kind(kind, arg, env, out, why);
	}
	return error;
}

static int refuse_unknown(const char *spec, struct energy_why *why)
{
	char names[NAMES_BYTES] = "auto";
	size_t used = strlen(names);

	for (size_t i = 0; i < energy_kind_count && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 i + 1 < energy_kind_count ? ", " : " or ",
					 energy_kinds[i]->usage);
	return why_fail(why, -EINVAL, "unknown energy source '%.20s': use %s", spec, names);
}

static int named_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		      struct energy_why *why)
{
	const char *colon = strchr(spec, ':');
	size_t name_len = colon ? (size_t)(colon - spec) : strlen(spec);
	const char *arg = colon ? colon + 1 : NULL;

	for (size_t i = 0; i < energy_kind_count; i++) {
		const struct energy_kind *kind = energy_kinds[i];
		int error;

		if (strlen(kind->name) != name_len || strncmp(kind->name, spec, name_len))
			continue;
		if (!arg)
			arg = kind->default_arg;
		if (!arg || (colon && (!*arg || (kind->default_arg && !*kind->default_arg))))
			return why_fail(why, -EINVAL, "energy source '%s': write %s", spec,
					kind->usage);
		why_add(why, "%s: ", kind->name);
		error = open_kind(kind, arg, env, out, why);
		if (error == -ENOENT && kind->hint)
			why_add(why, "; %s", kind->hint);
		if (error == -EACCES || error == -EPERM)
			why_add(why, "; %s", kind->denied ? kind->denied : "run as root");
		return error;
	}
	return refuse_unknown(spec, why);
}

static const char *tree_beside(const struct energy_source *source, const struct energy_env *env)
{
	if (source->powercap_root)
		return source->powercap_root;
	return env->powercap_root ? env->powercap_root : POWERCAP_ROOT;
}

/* Opens core counters, but not beside packages of a tree that the user named. */
static void open_cores(struct energy_source *source, const struct energy_env *env,
		       struct energy_why *why)
{
	char path[PATH_MAX], text[ENERGY_WHY_BYTES] = "";
	struct energy_why reason = {.text = text, .room = sizeof(text)};
	bool system = source->powercap_root && !strcmp(source->powercap_root, POWERCAP_ROOT);
	const char *pmu = source->pmu ? source->pmu : system ? PMU_SYSFS : NULL;
	int error;

	if (!env->single_cores || !pmu)
		return;
	snprintf(path, sizeof(path), "%s_core", pmu);
	error = cores_open(source, path, env, &reason);
	if (error && (*text || error != -ENOENT))
		why_add(why, "; no counters of single cores: %s", *text ? text : strerror(-error));
}

int energy_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		char *why, size_t why_len)
{
	struct energy_why line = {.text = why, .room = why_len};
	int error;

	*out = NULL;
	if (why_len)
		*why = '\0';
	error =
	    !strcmp(spec, "auto") ? auto_open(env, out, &line) : named_open(spec, env, out, &line);
	if (!error) {
		(*out)->appeared = appeared_new(tree_beside(*out, env));
		open_cores(*out, env, &line);
	}
	return error;
}

void energy_list(FILE *out)
{
	static const char *const grades[] = {
	    [QJ_GRADE_NONE] = "none",
	    [QJ_GRADE_MEASURED] = "measured",
	    [QJ_GRADE_ESTIMATED] = "estimated",
	    [QJ_GRADE_SIMULATED] = "simulated",
	};

	for (size_t i = 0; i < energy_kind_count; i++)
		fprintf(out, "%s\t%s\t%s\t%s\n", energy_kinds[i]->name,
			grades[energy_kinds[i]->grade],
			energy_kinds[i]->auto_arg ? "auto" : "named", energy_kinds[i]->usage);
}

unsigned energy_read(struct energy_source *source, struct qj_energy *out)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < source->domain_count; i++) {
		out[i] = (struct qj_energy){
		    .package = (uint16_t)source->domains[i].package,
		    .domain = (uint16_t)source->domains[i].domain,
		};
	}
	source->ops->read(source, out);
	for (unsigned i = 0; i < source->domain_count; i++)
		failed += out[i].status != 0;
	return failed;
}

unsigned energy_appeared(struct energy_source *source, struct qj_domain *found)
{
	return source->appeared ? appeared_poll(source->appeared, found) : 0;
}

void energy_close(struct energy_source *source)
{
	if (!source)
		return;
	appeared_free(source->appeared);
	cores_free(source->cores);
	source->ops->close(source);
}
