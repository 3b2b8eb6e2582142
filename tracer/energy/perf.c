// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * `perf`: RAPL through the PMU `power` (arch/x86/events/rapl.c).
 *
 * The PMU's cpumask names one CPU of each package (of each die, if a package has several), and one
 * event per counter is opened there. The kernel sums the 32-bit register into 64 bits with its own
 * timer, in units of 2^-32 J. That lasts 99 days at 500 W, so there is no range. Events are
 * system-wide and never multiplexed. The PMU `power_core` of newer kernels is not used: it counts
 * single AMD cores, a part of what `power` counts per package.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source.h"
#include "system.h"

#define DEFAULT_SYSFS "/sys/bus/event_source/devices/power"
#define TEXT_BYTES    256

struct perf_source {
	struct energy_source base;
	int fds[ENERGY_MAX_DOMAINS];
};

static const struct {
	const char *event;
	const char *domain;
} events[] = {
    {"energy-pkg", "package"}, {"energy-cores", "core"}, {"energy-gpu", "uncore"},
    {"energy-ram", "dram"},    {"energy-psys", "psys"},
};

struct event {
	uint32_t type;
	uint64_t config;
	double unit_j;
};

static void perf_read(struct energy_source *source, struct qj_energy *out)
{
	struct perf_source *self = (struct perf_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++) {
		uint64_t before_ns = energy_now_ns();
		ssize_t got = read(self->fds[i], &out[i].raw, sizeof(out[i].raw));
		int error = got < 0 ? errno : 0;

		energy_stamp(&out[i], before_ns, energy_now_ns());
		/* End of file: the event is in error state because its CPU went offline. */
		out[i].status =
		    (uint32_t)(got >= 0 && got < (ssize_t)sizeof(out[i].raw) ? EIO : error);
	}
}

static void perf_close(struct energy_source *source)
{
	struct perf_source *self = (struct perf_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++)
		close(self->fds[i]);
	free(self);
}

static int read_type(int sysfs_fd, uint32_t *type, struct energy_why *why)
{
	char text[TEXT_BYTES];
	uint64_t number;
	int got = energy_read_text(sysfs_fd, "type", text, sizeof(text));

	if (got < 0)
		return why_fail(why, got, "type: %s", strerror(-got));
	if (energy_parse_u64(text, &number) || number > UINT32_MAX)
		return why_fail(why, -EINVAL, "type is not the number of a PMU");
	*type = (uint32_t)number;
	return 0;
}

/* An event file reads "event=0x02"; the PMU's format maps `event` to the low bits of config. */
static int read_config(int sysfs_fd, const char *name, uint64_t *config, struct energy_why *why)
{
	char path[64], text[TEXT_BYTES], *end;
	int got;

	snprintf(path, sizeof(path), "events/%s", name);
	got = energy_read_text(sysfs_fd, path, text, sizeof(text));
	if (got == -ENOENT)
		return got;
	if (got < 0)
		return why_fail(why, got, "%s: %s", path, strerror(-got));
	errno = 0;
	*config = strncmp(text, "event=0x", 8) ? 0 : strtoull(text + 8, &end, 16);
	if (strncmp(text, "event=0x", 8) || errno || end == text + 8 || *end)
		return why_fail(why, -EINVAL, "%s is not event=0xNN", path);
	return 0;
}

static int read_unit(int sysfs_fd, const char *name, double *unit_j, struct energy_why *why)
{
	char path[64], text[TEXT_BYTES], *end;
	int got;

	snprintf(path, sizeof(path), "events/%s.unit", name);
	got = energy_read_text(sysfs_fd, path, text, sizeof(text));
	if (got < 0 || strcmp(text, "Joules"))
		return why_fail(why, -EINVAL, "%s does not say Joules", path);
	snprintf(path, sizeof(path), "events/%s.scale", name);
	got = energy_read_text(sysfs_fd, path, text, sizeof(text));
	*unit_j = got > 0 ? strtod(text, &end) : 0;
	if (got <= 0 || *end || !isfinite(*unit_j) || *unit_j <= 0)
		return why_fail(why, -EINVAL, "%s is not a positive number", path);
	return 0;
}

/* A CPU of the mask, and the die that its counters cover. */
struct place {
	const struct qj_cpu *cpu;
	unsigned die;
};

static int open_event(struct perf_source *self, const struct event *event,
		      const struct place *place, const char *domain, struct energy_why *why)
{
	const struct qj_cpu *cpu = place->cpu;
	int fd = root_part_counter(event->type, event->config, cpu->cpu, 0);

	if (fd < 0)
		return why_fail(why, fd, "perf_event_open of %s on CPU %u: %s", domain, cpu->cpu,
				strerror(-fd));
	if (!energy_add_counter(&self->base, cpu->package, domain, event->unit_j, 0,
				RAPL_PERIOD_NS)) {
		close(fd);
		return why_fail(why, -E2BIG, "more than %d counters", ENERGY_MAX_DOMAINS);
	}
	self->base.domains[self->base.domain_count - 1].die = place->die;
	self->fds[self->base.domain_count - 1] = fd;
	return 0;
}

/* `again`: an earlier place is in the same package, so that its psys is the same, too. */
static int open_on_cpu(struct perf_source *self, int sysfs_fd, uint32_t type,
		       const struct place *place, bool again, struct energy_why *why)
{
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct event event = {.type = type};
		bool psys = !strcmp(events[i].domain, "psys");
		struct place of = {place->cpu, psys ? QJ_WHOLE_PACKAGE : place->die};
		int error = read_config(sysfs_fd, events[i].event, &event.config, why);

		if (error == -ENOENT || (psys && again))
			continue;
		if (!error)
			error = read_unit(sysfs_fd, events[i].event, &event.unit_j, why);
		if (!error)
			error = open_event(self, &event, &of, events[i].domain, why);
		if (error)
			return error;
	}
	return 0;
}

static const struct qj_cpu *find_cpu(const struct energy_env *env, unsigned long cpu)
{
	for (unsigned i = 0; i < env->cpu_count; i++)
		if (env->cpus[i].cpu == cpu)
			return &env->cpus[i];
	return NULL;
}

/* Removes "3" or "0-3" from the front of a list such as "0,24" or "0-1". False: malformed list. */
static bool next_range(const char **at, unsigned long *first, unsigned long *last)
{
	char *end;

	if (!isdigit((unsigned char)**at))
		return false;
	*first = *last = strtoul(*at, &end, 10);
	if (*end == '-') {
		if (!isdigit((unsigned char)end[1]))
			return false;
		*last = strtoul(end + 1, &end, 10);
	}
	*at = *end == ',' ? end + 1 : end;
	return !*end || (*end == ',' && end[1]);
}

/* Reads the mask: one place per package or die. Returns how many, or a negative errno. */
static int read_mask(int sysfs_fd, const struct energy_env *env,
		     struct place places[ENERGY_MAX_DOMAINS], struct energy_why *why)
{
	unsigned long first, last;
	char text[TEXT_BYTES];
	const char *at = text;
	int got = energy_read_text(sysfs_fd, "cpumask", text, sizeof(text));
	int count = 0;

	if (got < 0)
		return why_fail(why, got, "cpumask: %s", strerror(-got));
	do {
		if (!next_range(&at, &first, &last))
			return why_fail(why, -EINVAL, "cpumask '%s' is not a list of CPUs", text);
		for (unsigned long number = first; number <= last; number++) {
			const struct qj_cpu *cpu = find_cpu(env, number);

			if (!cpu)
				return why_fail(why, -EINVAL, "cpumask names CPU %lu, not online",
						number);
			if (count == ENERGY_MAX_DOMAINS)
				return why_fail(why, -E2BIG, "cpumask names too many CPUs");
			places[count++] = (struct place){cpu, QJ_WHOLE_PACKAGE};
		}
	} while (*at);
	return count;
}

static int open_on_mask(struct perf_source *self, int sysfs_fd, uint32_t type,
			const struct energy_env *env, struct energy_why *why)
{
	struct place places[ENERGY_MAX_DOMAINS];
	int count = read_mask(sysfs_fd, env, places, why), error = count < 0 ? count : 0;

	for (int i = 0; !error && i < count; i++) {
		struct place *place = &places[i];
		unsigned before = 0, in_package = 0;

		for (int j = 0; j < count; j++) {
			bool same = places[j].cpu->package == place->cpu->package;
			in_package += same;
			before += same && j < i;
		}
		if (before && env->of_packages)
			continue;
		if (in_package > 1 && !env->of_packages)
			place->die = env->dies ? env->dies[place->cpu - env->cpus] : before;
		error = open_on_cpu(self, sysfs_fd, type, place, before > 0, why);
	}
	return error;
}

static int open_pmu(struct perf_source *self, const char *sysfs, const struct energy_env *env,
		    struct energy_why *why)
{
	int sysfs_fd = open(sysfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t type;
	int error;

	if (sysfs_fd < 0 && errno == ENOENT)
		return why_fail(why, -ENOENT, "no PMU at %s", sysfs);
	if (sysfs_fd < 0)
		return why_fail(why, -errno, "%s: %s", sysfs, strerror(errno));
	error = read_type(sysfs_fd, &type, why);
	if (!error)
		error = open_on_mask(self, sysfs_fd, type, env, why);
	close(sysfs_fd);
	if (!error)
		error = energy_check_packages(&self->base, env, why);
	if (!error)
		why_add(why, "%u counter%s of the PMU at %s", self->base.domain_count,
			self->base.domain_count == 1 ? "" : "s", sysfs);
	return error;
}

static int perf_open(const char *sysfs, const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	static const struct energy_ops ops = {.read = perf_read, .close = perf_close};
	struct perf_source *self = calloc(1, sizeof(*self));
	int error;

	if (!self)
		return why_fail(why, -ENOMEM, "out of memory");
	self->base.ops = &ops;
	error = open_pmu(self, sysfs, env, why);
	if (error)
		perf_close(&self->base);
	else
		*out = &self->base;
	return error;
}

static const char *perf_auto(const struct energy_env *env)
{
	return env->perf_sysfs ? env->perf_sysfs : DEFAULT_SYSFS;
}

const struct energy_kind energy_perf = {
    .name = "perf",
    .grade = QJ_GRADE_MEASURED,
    .open = perf_open,
    .default_arg = DEFAULT_SYSFS,
    .usage = "perf[:SYSFS]",
    .auto_arg = perf_auto,
    .must_move = true,
    .hint = ENERGY_NO_RAPL,
};
