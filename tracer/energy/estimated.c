// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * `estimated`: a synthetic counter from a power curve and CPU time, for machines without RAPL.
 *
 * A curve gives the watts of one package at 0, 10, 50 and 100 % of its CPUs busy, linear in
 * between. It has four points because power is a concave function of load: measured servers draw a
 * third of their full power at 10 % load, which a line from idle to full would halve. Two further
 * curves by the same load may follow: the watts of a package's share of DRAM, and of its share of
 * the machine's rest (power supply, fans, board). Four zeros mean no curve. A single number after
 * the package's curve is a constant power of DRAM.
 *
 * At each reading, the busy time since the previous reading gives the load, and the load gives the
 * power. Power times elapsed time is added to a counter, in nJ. Counters start at 0 with the first
 * reading. Busy time beyond the CPUs' total time (clocks read a moment apart) counts as 100 %. If
 * the busy time is unknown, the reading fails; the next good one covers the whole time since the
 * last good reading. If the busy time runs backwards, the reading fails with ERANGE and the counter
 * restarts at 0, like a reset of the hardware, so that this time counts as unknown.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

#define NANOJOULE_J  1e-9
#define CURVE_POINTS 4
#define MAX_WATTS    100000.0 /* above any package's power: a typing error */
#define MAX_ERROR    1000.0   /* relative; a larger error is rejected */
#define NEVER_WRAPS  0	      /* 2^64 nJ last for a year at 500 W */
#define THOUSANDTHS  1000.0

enum {
	PACKAGE,
	DRAM,
	REST,
	SERIES
};
#define MAX_NUMBERS (SERIES * CURVE_POINTS)

static const char *const series_names[SERIES] = {"package", "dram", "rest"};
static const double curve_load[CURVE_POINTS] = {0.0, 0.1, 0.5, 1.0};

struct counter {
	uint64_t energy_nj;
	double carry_nj; /* the remainder below 1 nJ */
};

struct package {
	unsigned number;
	unsigned cpus;
	bool started;
	uint64_t t_ns;
	uint64_t busy_ns;
	struct counter counters[SERIES];
};

struct estimated_source {
	struct energy_source base;
	const struct energy_env *env;
	double watts[SERIES][CURVE_POINTS];
	bool given[SERIES];
	double errors[SERIES]; /* relative; 0: not known */
	unsigned package_count;
	struct package packages[ENERGY_MAX_DOMAINS];
};

static double power_at(const double *watts, double load)
{
	unsigned i = 1;

	if (load >= 1.0)
		return watts[CURVE_POINTS - 1];
	while (load > curve_load[i])
		i++;
	return watts[i - 1] + (watts[i] - watts[i - 1]) * (load - curve_load[i - 1]) /
				  (curve_load[i] - curve_load[i - 1]);
}

/* W times ns is nJ. */
static void count_up(struct counter *counter, double watts, uint64_t elapsed_ns)
{
	double add_nj = watts * (double)elapsed_ns + counter->carry_nj;
	double whole_nj = floor(add_nj);

	counter->energy_nj += (uint64_t)whole_nj;
	counter->carry_nj = add_nj - whole_nj;
}

/* Brings a package's counters up to now. Returns 0 or the errno of the reading. */
static int advance(struct estimated_source *self, struct package *package, uint64_t now_ns,
		   uint64_t busy_ns)
{
	uint64_t elapsed_ns = now_ns - package->t_ns;
	double load;
	int error = 0;

	if (busy_ns == ENERGY_BUSY_FAILED)
		return EIO;
	if (package->started && busy_ns < package->busy_ns) {
		memset(package->counters, 0, sizeof(package->counters));
		error = ERANGE;
	} else if (package->started && elapsed_ns) {
		load = (double)(busy_ns - package->busy_ns) / ((double)elapsed_ns * package->cpus);
		for (unsigned i = 0; i < SERIES; i++)
			count_up(&package->counters[i], power_at(self->watts[i], load), elapsed_ns);
	}
	package->started = true;
	package->t_ns = now_ns;
	package->busy_ns = busy_ns;
	return error;
}

static void estimated_read(struct energy_source *source, struct qj_energy *out)
{
	struct estimated_source *self = (struct estimated_source *)source;

	for (unsigned i = 0; i < self->package_count; i++) {
		struct package *package = &self->packages[i];
		uint64_t before_ns = energy_now_ns();
		uint64_t busy_ns = self->env->busy_ns(self->env->ctx, package->number);
		struct qj_energy *first = out;
		int error;

		energy_stamp(first, before_ns, energy_now_ns());
		error = advance(self, package, first->t_ns, busy_ns);
		for (unsigned series = 0; series < SERIES; series++) {
			if (!self->given[series])
				continue;
			out->t_ns = first->t_ns;
			out->half_width_ns = first->half_width_ns;
			out->status = (uint32_t)error;
			out->raw = package->counters[series].energy_nj;
			out++;
		}
	}
}

static void estimated_close(struct energy_source *source)
{
	free(source);
}

/*
 * Parses numbers from 0 to `most`, separated by commas. Returns how many, at most `room`, or 0 if
 * the text is anything else.
 */
static unsigned parse_numbers(const char *text, double most, double *out, unsigned room)
{
	unsigned count = 0;
	const char *at = text;
	char *end;

	do {
		if (count == room)
			return 0;
		out[count] = strtod(at, &end);
		if (end == at || (*end && *end != ',') || !(out[count] >= 0) || out[count] > most)
			return 0;
		count++;
		at = end + 1;
	} while (*end);
	return count;
}

static int check_series(struct estimated_source *self, unsigned series, const char *text,
			struct energy_why *why)
{
	const double *watts = self->watts[series];

	for (unsigned i = 1; i < CURVE_POINTS; i++)
		if (watts[i] < watts[i - 1])
			return why_fail(why, -EINVAL, "'%.40s' falls with load", text);
	self->given[series] = watts[CURVE_POINTS - 1] > 0;
	if (series == PACKAGE && !self->given[series])
		return why_fail(why, -EINVAL, "'%.40s' draws no power at full load", text);
	return 0;
}

/* Parses "W0,W10,W50,W100" of a package, then "DRAM" or four of DRAM, then four of the rest. */
static int parse_curve(struct estimated_source *self, const char *text, struct energy_why *why)
{
	double values[MAX_NUMBERS];
	unsigned count = parse_numbers(text, MAX_WATTS, values, MAX_NUMBERS);
	int error = 0;

	if (count == CURVE_POINTS + 1)
		for (; count < 2 * CURVE_POINTS; count++)
			values[count] = values[count - 1];
	if (!count || count % CURVE_POINTS)
		return why_fail(why, -EINVAL, "'%.40s' is not W0,W10,W50,W100[,DRAM]", text);
	for (unsigned i = 0; i < count; i++)
		self->watts[i / CURVE_POINTS][i % CURVE_POINTS] = values[i];
	for (unsigned series = 0; !error && series < SERIES; series++)
		error = check_series(self, series, text, why);
	return error;
}

/* The errors apply only to the curve that came with them. */
static int parse_errors(struct estimated_source *self, const struct energy_env *env,
			const char *curve, struct energy_why *why)
{
	if (!env->curve_errors || curve != env->curve)
		return 0;
	if (!parse_numbers(env->curve_errors, MAX_ERROR, self->errors, SERIES))
		return why_fail(why, -EINVAL, "'%.40s' is not E[,DRAM[,REST]]", env->curve_errors);
	return 0;
}

static bool add_domain(struct estimated_source *self, unsigned package, unsigned series)
{
	struct qj_domain *domain =
	    energy_add_domain(&self->base, package, series_names[series], NANOJOULE_J, NEVER_WRAPS);

	if (domain) {
		domain->idle_w = self->watts[series][0];
		domain->kind = QJ_DOMAIN_COMPUTED;
		domain->error = (uint32_t)ceil(self->errors[series] * THOUSANDTHS);
	}
	return domain;
}

static int add_packages(struct estimated_source *self, const struct energy_env *env,
			struct energy_why *why)
{
	for (unsigned i = 0; i < env->cpu_count; i++) {
		unsigned number = env->cpus[i].package, known = 0;

		while (known < self->package_count && self->packages[known].number != number)
			known++;
		if (known < self->package_count)
			continue;
		for (unsigned series = 0; series < SERIES; series++)
			if (self->given[series] && !add_domain(self, number, series))
				return why_fail(why, -E2BIG, "more than %d counters",
						ENERGY_MAX_DOMAINS);
		self->packages[self->package_count++] = (struct package){
		    .number = number,
		    .cpus = energy_package_cpus(env, number),
		};
	}
	return 0;
}

static int estimated_open(const char *curve, const struct energy_env *env,
			  struct energy_source **out, struct energy_why *why)
{
	static const struct energy_ops ops = {.read = estimated_read, .close = estimated_close};
	struct estimated_source *self;
	int error;

	if (!env->busy_ns)
		return why_fail(why, -ENOTSUP, "no clock of busy CPU time");
	self = calloc(1, sizeof(*self));
	if (!self)
		return why_fail(why, -ENOMEM, "out of memory");
	self->base.ops = &ops;
	self->env = env;
	error = parse_curve(self, curve, why);
	if (!error)
		error = parse_errors(self, env, curve, why);
	if (!error)
		error = add_packages(self, env, why);
	if (error) {
		free(self);
		return error;
	}
	why_add(why, "power curve %s W by CPU time, not measured", curve);
	*out = &self->base;
	return 0;
}

static const char *estimated_auto(const struct energy_env *env)
{
	return env->curve;
}

const struct energy_kind energy_estimated = {
    .name = "estimated",
    .grade = QJ_GRADE_ESTIMATED,
    .open = estimated_open,
    .usage = "estimated:W0,W10,W50,W100[,DRAM]",
    .auto_arg = estimated_auto,
};
