// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Choosing an energy source by its spec, and the best one there is for `auto`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "source.h"

#define DEFAULT_POWERCAP   "/sys/class/powercap"
#define DEFAULT_PERF_SYSFS "/sys/bus/event_source/devices/power"

/* RAPL updates about every millisecond; psys in 1 J units may take several at low power. */
#define PROOF_MS      100
#define PROOF_STEP_MS 5

typedef int (*energy_opener)(const char *arg, const struct energy_env *env,
			     struct energy_source **out, struct energy_why *why);

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
	static const struct energy_ops none_ops = {.read = none_read, .close = none_close};
	struct energy_source *source = calloc(1, sizeof(*source));

	(void)arg;
	(void)env;
	if (!source)
		return why_fail(why, -ENOMEM, "out of memory");
	source->ops = &none_ops;
	source->name = "none";
	source->grade = QJ_GRADE_NONE;
	why_add(why, "no energy, only CPU time");
	*out = source;
	return 0;
}

static const struct source_kind {
	const char *name;
	energy_opener open;
	const char *default_arg; /* NULL: the spec must give one; "": it takes none */
	const char *usage;
} kinds[] = {
    {"powercap", energy_powercap_open, DEFAULT_POWERCAP, "powercap[:ROOT]"},
    {"perf", energy_perf_open, DEFAULT_PERF_SYSFS, "perf[:SYSFS]"},
    {"host", energy_host_open, NULL, "host:ROOT"},
    {"estimated", energy_estimated_open, NULL, "estimated:W0,W10,W50,W100[,DRAM]"},
    {"replay", energy_replay_open, NULL, "replay:FILE"},
    {"none", none_open, "", "none"},
};

/* What to do about a named source that did not open. */
static const char *advice(const char *name, int error)
{
	bool hardware = !strcmp(name, "powercap") || !strcmp(name, "perf");

	if (error == -EACCES || error == -EPERM)
		return strcmp(name, "replay") ? "; run as root" : "; check its permissions";
	if (error == -ENOENT && hardware)
		return "; modprobe intel_rapl_msr, or in a VM use --energy auto or estimated";
	if (error == -ENOENT && !strcmp(name, "host"))
		return "; mount the tree that the hypervisor exports, or use --energy auto";
	return "";
}

/*
 * A counter that exists need not count: guests may see a PMU `power` that reads zero for ever.
 * Zero joules labelled `measured` would be a lie, so a source that nobody named has to move.
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

struct candidate {
	const char *name;
	energy_opener open;
	const char *arg; /* NULL: not considered */
	bool needs_proof;
	const char *label;
};

/* One step of `auto`. What kept a candidate from being taken goes to `why`. */
static int try_candidate(const struct candidate *candidate, const struct energy_env *env,
			 struct energy_source **out, struct energy_why *why)
{
	char text[ENERGY_WHY_BYTES] = "";
	struct energy_why reason = {.text = text, .room = sizeof(text)};
	int error = candidate->open(candidate->arg, env, out, &reason);

	if (!error && candidate->needs_proof) {
		reason.used = 0;
		error = prove_moving(*out, &reason);
		if (error) {
			energy_close(*out);
			*out = NULL;
		}
	}
	if (error)
		why_add(why, "%s: %s; ", candidate->name, text);
	return error;
}

static int auto_open(const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	const char *curve = env->curve_label ? env->curve_label : env->curve;
	const struct candidate candidates[] = {
	    {"powercap", energy_powercap_open,
	     env->powercap_root ? env->powercap_root : DEFAULT_POWERCAP, true, "powercap"},
	    {"perf", energy_perf_open, env->perf_sysfs ? env->perf_sysfs : DEFAULT_PERF_SYSFS, true,
	     "perf"},
	    {"host", energy_host_open, env->host_root, false, "what the host apportioned"},
	    {"estimated", energy_estimated_open, env->curve, false, curve},
	};

	for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++) {
		const struct candidate *candidate = &candidates[i];

		if (!candidate->arg || try_candidate(candidate, env, out, why))
			continue;
		why_add(why, "using %s%s",
			candidate->open == energy_estimated_open ? "the power curve of " : "",
			candidate->label);
		return 0;
	}
	return none_open("", env, out, why);
}

static int named_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		      struct energy_why *why)
{
	const char *colon = strchr(spec, ':');
	size_t name_len = colon ? (size_t)(colon - spec) : strlen(spec);
	const char *arg = colon ? colon + 1 : NULL;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		const struct source_kind *kind = &kinds[i];
		int error;

		if (strlen(kind->name) != name_len || strncmp(kind->name, spec, name_len))
			continue;
		if (!arg)
			arg = kind->default_arg;
		if (!arg || (colon && (!*arg || (kind->default_arg && !*kind->default_arg))))
			return why_fail(why, -EINVAL, "energy source '%s': write %s", spec,
					kind->usage);
		why_add(why, "%s: ", kind->name);
		error = kind->open(arg, env, out, why);
		if (error)
			why_add(why, "%s", advice(kind->name, error));
		return error;
	}
	return why_fail(why, -EINVAL,
			"unknown energy source '%.40s': use auto, powercap, perf, host:ROOT, "
			"estimated:W0,W10,W50,W100, replay:FILE or none",
			spec);
}

int energy_open(const char *spec, const struct energy_env *env, struct energy_source **out,
		char *why, size_t why_len)
{
	struct energy_why line = {.text = why, .room = why_len};

	*out = NULL;
	if (why_len)
		*why = '\0';
	if (!strcmp(spec, "auto"))
		return auto_open(env, out, &line);
	return named_open(spec, env, out, &line);
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

void energy_close(struct energy_source *source)
{
	if (source)
		source->ops->close(source);
}
