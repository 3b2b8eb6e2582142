// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * `perf`: RAPL through the PMU `power` (arch/x86/events/rapl.c).
 *
 * The PMU's cpumask names one CPU of each package (of each die, if a package has several), and one
 * event per counter is opened there. The kernel sums the 32-bit register into 64 bits with its own
 * timer, in units of 2^-32 J. That lasts 99 days at 500 W, so there is no range. Events are
 * system-wide and never multiplexed. Single cores have a PMU of their own (cores.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmu.h"
#include "system.h"

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

	for (unsigned i = 0; i < source->domain_count; i++)
		pmu_read(self->fds[i], energy_now_ns(), &out[i]);
}

static void perf_close(struct energy_source *source)
{
	struct perf_source *self = (struct perf_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++)
		close(self->fds[i]);
	free(self);
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

/* `again`: an earlier place is in the same package, and so has the same psys. */
static int open_on_cpu(struct perf_source *self, int sysfs_fd, uint32_t type,
		       const struct place *place, bool again, struct energy_why *why)
{
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct event event = {.type = type};
		bool psys = !strcmp(events[i].domain, "psys");
		struct place of = {place->cpu, psys ? QJ_WHOLE_PACKAGE : place->die};
		int error = pmu_config(sysfs_fd, events[i].event, &event.config, why);

		if (error == -ENOENT || (psys && again))
			continue;
		if (!error)
			error = pmu_unit(sysfs_fd, events[i].event, &event.unit_j, why);
		if (!error)
			error = open_event(self, &event, &of, events[i].domain, why);
		if (error)
			return error;
	}
	return 0;
}

static int open_on_mask(struct perf_source *self, int sysfs_fd, uint32_t type,
			const struct energy_env *env, struct energy_why *why)
{
	const struct qj_cpu *cpus[ENERGY_MAX_DOMAINS];
	struct place places[ENERGY_MAX_DOMAINS];
	int count = pmu_cpus(sysfs_fd, env, cpus, ENERGY_MAX_DOMAINS, why);
	int error = count < 0 ? count : 0;

	for (int i = 0; i < count; i++)
		places[i] = (struct place){cpus[i], QJ_WHOLE_PACKAGE};
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
	error = pmu_type(sysfs_fd, &type, why);
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
	self->base.pmu = sysfs;
	error = open_pmu(self, sysfs, env, why);
	if (error)
		perf_close(&self->base);
	else
		*out = &self->base;
	return error;
}

static const char *perf_auto(const struct energy_env *env)
{
	return env->perf_sysfs ? env->perf_sysfs : PMU_SYSFS;
}

const struct energy_kind energy_perf = {
    .name = "perf",
    .grade = QJ_GRADE_MEASURED,
    .open = perf_open,
    .default_arg = PMU_SYSFS,
    .usage = "perf[:SYSFS]",
    .auto_arg = perf_auto,
    .must_move = true,
    .hint = ENERGY_NO_RAPL,
};
