// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Counters of single cores: the PMU `power_core` of AMD processors (arch/x86/events/rapl.c, since
 * Linux 6.13). Its cpumask names one CPU of each core. A reading interrupts that CPU if it is busy,
 * and wakes it if it sleeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmu.h"
#include "system.h"

#define EVENT  "energy-core"
#define NO_PMU "no PMU power_core (Linux 6.13 or later, module rapl)"

struct energy_cores {
	unsigned count;
	struct qj_domain domains[QJ_MAX_CPUS];
	int fds[QJ_MAX_CPUS];
};

static int open_core(struct energy_cores *self, uint32_t type, uint64_t config, double unit_j,
		     const struct qj_cpu *cpu, struct energy_why *why)
{
	struct qj_domain *domain = &self->domains[self->count];
	int fd = root_part_counter(type, config, cpu->cpu, 0);

	if (fd < 0)
		return why_fail(why, fd, "%s on CPU %u: %s", EVENT, cpu->cpu, strerror(-fd));
	*domain = (struct qj_domain){
	    .package = cpu->package,
	    .unit_j = unit_j,
	    .idle_w = __builtin_nan(""),
	    .period_ns = RAPL_PERIOD_NS,
	    .kind = QJ_DOMAIN_COUNTER,
	    .die = cpu->sibling,
	    .name = "one_core",
	};
	self->fds[self->count++] = fd;
	return 0;
}

static int open_all(struct energy_cores *self, int sysfs_fd, const struct energy_env *env,
		    struct energy_why *why)
{
	const struct qj_cpu *cpus[QJ_MAX_CPUS];
	uint64_t config;
	double unit_j;
	uint32_t type;
	int count, error = pmu_type(sysfs_fd, &type, why);

	if (!error)
		error = pmu_config(sysfs_fd, EVENT, &config, why);
	if (error == -ENOENT)
		why_add(why, "no event %s", EVENT);
	if (!error)
		error = pmu_unit(sysfs_fd, EVENT, &unit_j, why);
	if (error)
		return error;
	count = pmu_cpus(sysfs_fd, env, cpus, QJ_MAX_CPUS, why);
	if (count < 0)
		return count;
	for (int i = 0; !error && i < count; i++)
		error = open_core(self, type, config, unit_j, cpus[i], why);
	return error;
}

int cores_open(struct energy_source *source, const char *sysfs, const struct energy_env *env,
	       struct energy_why *why)
{
	int sysfs_fd = open(sysfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct energy_cores *self;
	int error;

	if (sysfs_fd < 0 && errno == ENOENT && env->amd)
		return why_fail(why, -ENOENT, NO_PMU);
	if (sysfs_fd < 0)
		return -errno;
	self = calloc(1, sizeof(*self));
	error = self ? open_all(self, sysfs_fd, env, why) : -ENOMEM;
	close(sysfs_fd);
	if (error) {
		cores_free(self);
		return error;
	}
	for (unsigned i = 0; i < self->count; i++)
		self->domains[i].domain = source->domain_count + i;
	source->cores = self;
	return 0;
}

const struct qj_domain *energy_core(const struct energy_source *source, unsigned number)
{
	struct energy_cores *self = source->cores;

	return self && number < self->count ? &self->domains[number] : NULL;
}

void energy_read_core(struct energy_source *source, unsigned number, struct qj_energy *out)
{
	const struct qj_domain *domain = &source->cores->domains[number];
	uint64_t before_ns = energy_now_ns();

	*out = (struct qj_energy){.package = (uint16_t)domain->package,
				  .domain = (uint16_t)domain->domain};
	pmu_read(source->cores->fds[number], before_ns, out);
}

void cores_free(struct energy_cores *cores)
{
	for (unsigned i = 0; cores && i < cores->count; i++)
		close(cores->fds[i]);
	free(cores);
}
