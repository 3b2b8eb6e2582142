// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * `replay`: counters from a text file, for tests and demonstrations.
 *
 *     # comment
 *     domain PACKAGE NAME UNIT_J RANGE [PERIOD_MS]   one line per counter, before its readings
 *     T_MS PACKAGE NAME RAW                          a reading; RAW `-`: a reading that failed
 *
 * UNIT_J is the joules per count, RANGE the modulus (0: does not wrap), PERIOD_MS how often the
 * counter moves (absent: not known). T_MS counts from the moment of opening and may have decimals;
 * per counter it must not decrease. A reading gives the last value at or before now, without
 * interpolation: hardware counters step too. Before the first value it fails with ENODATA, and
 * after the last the counter stands still.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

#define MAX_SAMPLES (1u << 22) /* 100 MB: more than a day at 20 ms */
#define MAX_MS	    1e12

struct sample {
	uint64_t t_ns;
	uint64_t raw;
	bool failed;
};

struct track {
	struct sample *samples;
	size_t count;
	size_t room;
	size_t next; /* index of the first sample in the future */
};

struct replay_source {
	struct energy_source base;
	uint64_t start_ns;
	struct track tracks[ENERGY_MAX_DOMAINS];
};

static void replay_read(struct energy_source *source, struct qj_energy *out)
{
	struct replay_source *self = (struct replay_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++) {
		struct track *track = &self->tracks[i];
		uint64_t now_ns = energy_now_ns();

		energy_stamp(&out[i], now_ns, now_ns);
		while (track->next < track->count &&
		       track->samples[track->next].t_ns <= now_ns - self->start_ns)
			track->next++;
		if (!track->next) {
			out[i].status = ENODATA;
			continue;
		}
		out[i].raw = track->samples[track->next - 1].raw;
		out[i].status = track->samples[track->next - 1].failed ? EIO : 0;
	}
}

static void replay_close(struct energy_source *source)
{
	struct replay_source *self = (struct replay_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++)
		free(self->tracks[i].samples);
	free(self);
}

/* The index of a declared domain, or -1. */
static int find_domain(const struct replay_source *self, unsigned package, const char *name)
{
	for (unsigned i = 0; i < self->base.domain_count; i++)
		if (self->base.domains[i].package == package &&
		    !strcmp(self->base.domains[i].name, name))
			return (int)i;
	return -1;
}

/* Each of these returns NULL, or the error in the line. */
static const char *add_domain_line(struct replay_source *self, const struct energy_env *env,
				   const char *line)
{
	char name[20], unit[32], range[32], period[32] = "0", *end;
	unsigned package;
	uint64_t modulus;
	double unit_j, period_ms;
	int used = 0;

	if (sscanf(line, "domain %5u %19s %31s %31s %n%31s %n", &package, name, unit, range, &used,
		   period, &used) < 4 ||
	    line[used])
		return "is not: domain PACKAGE NAME UNIT_J RANGE [PERIOD_MS]";
	period_ms = strtod(period, &end);
	if (*end || !(period_ms >= 0) || period_ms > MAX_MS)
		return "has a period that is not a number of milliseconds";
	unit_j = strtod(unit, &end);
	if (*end || !isfinite(unit_j) || unit_j <= 0)
		return "has a unit that is not a positive number of joules";
	if (energy_parse_u64(range, &modulus))
		return "has a range that is not a whole number";
	if (!energy_has_package(env, package))
		return "names a package that this machine does not have";
	if (find_domain(self, package, name) >= 0)
		return "declares a domain twice";
	if (!energy_add_counter(&self->base, package, name, unit_j, modulus,
				(uint64_t)(period_ms * 1e6)))
		return "is one domain too many";
	return NULL;
}

static const char *append(struct track *track, struct sample sample)
{
	size_t room = track->room ? 2 * track->room : 64;
	struct sample *grown;

	if (track->count && track->samples[track->count - 1].t_ns > sample.t_ns)
		return "goes back in time";
	if (track->count == MAX_SAMPLES)
		return "is one reading too many";
	if (track->count == track->room) {
		grown = realloc(track->samples, room * sizeof(*grown));
		if (!grown)
			return "does not fit into memory";
		track->samples = grown;
		track->room = room;
	}
	track->samples[track->count++] = sample;
	return NULL;
}

static const char *add_sample_line(struct replay_source *self, const char *line)
{
	char time[32], name[20], raw[32], *end;
	struct sample sample = {0};
	unsigned package;
	uint64_t range;
	double t_ms;
	int index, used = 0;

	if (sscanf(line, "%31s %5u %19s %31s %n", time, &package, name, raw, &used) != 4 ||
	    line[used])
		return "is not: T_MS PACKAGE NAME RAW";
	t_ms = strtod(time, &end);
	if (*end || !(t_ms >= 0) || t_ms > MAX_MS)
		return "has a time that is not a number of milliseconds";
	sample.t_ns = (uint64_t)(t_ms * 1e6);
	index = find_domain(self, package, name);
	if (index < 0)
		return "is about a domain that no line before declares";
	sample.failed = !strcmp(raw, "-");
	if (!sample.failed && energy_parse_u64(raw, &sample.raw))
		return "has a reading that is not a whole number";
	range = self->base.domains[index].range;
	if (range && sample.raw >= range)
		return "has a reading outside the domain's range";
	return append(&self->tracks[index], sample);
}

static int load(struct replay_source *self, const struct energy_env *env, const char *path,
		FILE *file, struct energy_why *why)
{
	char line[256];

	for (unsigned number = 1; fgets(line, sizeof(line), file); number++) {
		const char *text = line + strspn(line, " \t\r\n"), *wrong = NULL;

		if (strlen(line) == sizeof(line) - 1 && line[sizeof(line) - 2] != '\n')
			wrong = "is too long";
		else if (!strncmp(text, "domain ", 7))
			wrong = add_domain_line(self, env, text);
		else if (*text && *text != '#')
			wrong = add_sample_line(self, text);
		if (wrong)
			return why_fail(why, -EINVAL, "%s line %u %s", path, number, wrong);
	}
	if (ferror(file))
		return why_fail(why, -EIO, "%s cannot be read", path);
	for (unsigned i = 0; i < self->base.domain_count; i++)
		if (!self->tracks[i].count)
			return why_fail(why, -EINVAL, "%s has no readings of %s", path,
					self->base.domains[i].name);
	if (!self->base.domain_count)
		return why_fail(why, -EINVAL, "%s declares no domain", path);
	return 0;
}

static int replay_open(const char *path, const struct energy_env *env, struct energy_source **out,
		       struct energy_why *why)
{
	static const struct energy_ops ops = {.read = replay_read, .close = replay_close};
	struct replay_source *self;
	FILE *file = fopen(path, "re");
	int error;

	if (!file)
		return why_fail(why, -errno, "%s: %s", path, strerror(errno));
	self = calloc(1, sizeof(*self));
	error = self ? load(self, env, path, file, why) : why_fail(why, -ENOMEM, "out of memory");
	fclose(file);
	if (error) {
		if (self)
			replay_close(&self->base);
		return error;
	}
	self->base.ops = &ops;
	self->start_ns = energy_now_ns();
	why_add(why, "%s", path);
	*out = &self->base;
	return 0;
}

const struct energy_kind energy_replay = {
    .name = "replay",
    .grade = QJ_GRADE_SIMULATED,
    .open = replay_open,
    .usage = "replay:FILE",
    .denied = "check its permissions",
};
