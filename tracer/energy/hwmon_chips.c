// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The chips that `hwmon` knows, and what they measure. Other chips are not read: they may measure
 * the machine, a part that another counter covers too, or a graphics card.
 *
 * - power_meter: power1_average, in uW. ACPI's meter of the whole machine (psys). Only one is
 *   accepted: several may belong to power supplies that share the load, or measure the same machine
 *   again.
 * - amd_energy: energyN_input, in uJ. RAPL by another name. Esocket is a package, Ecore one core.
 *
 * Documentation/hwmon/acpi_power_meter.rst, amd_energy.rst.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hwmon.h"

#define MAX_INPUTS   4096 /* per chip: more than any processor has cores */
#define MAX_SOCKETS  8
#define TEXT_BYTES   64
#define MS_NS	     1000000ull
#define MICROJOULE_J 1e-6
#define NANOJOULE_J  1e-9
#define DEFAULT_MS   1000 /* for meters that do not report their averaging interval */
#define MAX_MS	     3600000

/* Opens a file with a number and adds its domain. Fails if the first reading is no number. */
static int add_input(struct hwmon_source *self, int chip_fd, const char *file, unsigned package,
		     const char *domain, enum qj_domain_kind kind, uint64_t period_ns,
		     struct energy_why *why)
{
	double unit_j = kind == QJ_DOMAIN_POWER ? NANOJOULE_J : MICROJOULE_J;
	int fd = openat(chip_fd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct qj_domain *added;
	uint64_t value;
	int error;

	if (fd < 0)
		return why_fail(why, -errno, "%s: %s", file, strerror(errno));
	error = hwmon_number(fd, &value);
	if (error) {
		close(fd);
		return why_fail(why, -error, "%s: %s", file, strerror(error));
	}
	if (kind == QJ_DOMAIN_POWER && (!value || value > HWMON_MAX_UW)) {
		close(fd);
		return why_fail(why, -ENODATA, "%s shows no power of a machine", file);
	}
	added = energy_add_counter(&self->base, package, domain, unit_j, 0, period_ns);
	if (!added) {
		close(fd);
		return why_fail(why, -E2BIG, "more than %d counters", ENERGY_MAX_DOMAINS);
	}
	added->kind = kind;
	self->inputs[self->base.domain_count - 1] =
	    (struct input){.fd = fd, .period_ns = period_ns};
	return 0;
}

static uint64_t read_ms(int chip_fd, const char *file)
{
	char text[TEXT_BYTES];
	uint64_t ms;
	int got = energy_read_text(chip_fd, file, text, sizeof(text));

	return got > 0 && !energy_parse_u64(text, &ms) && ms && ms <= MAX_MS ? ms : DEFAULT_MS;
}

/* Opens ACPI's meter of the machine. */
static int open_power_meter(struct hwmon_source *self, int chip_fd, const struct energy_env *env,
			    struct energy_why *why)
{
	uint64_t period_ns = read_ms(chip_fd, "power1_average_interval") * MS_NS;

	for (unsigned i = 0; i < self->base.domain_count; i++)
		if (self->base.domains[i].kind == QJ_DOMAIN_POWER)
			return why_fail(why, -EEXIST, "a second meter");
	return add_input(self, chip_fd, "power1_average", env->cpus[0].package, "psys",
			 QJ_DOMAIN_POWER, period_ns, why);
}

/* Finds the package of a core from the core's number on the machine, via its lowest CPU. Returns
 * false if there is no such core. */
static bool package_of_core(const struct energy_env *env, unsigned number, unsigned *package)
{
	for (unsigned i = 0; i < env->cpu_count; i++) {
		if (env->cpus[i].sibling != env->cpus[i].cpu || number--)
			continue;
		*package = env->cpus[i].package;
		return true;
	}
	return false;
}

static unsigned count_cores(const struct energy_env *env)
{
	unsigned cores = 0, package;

	while (package_of_core(env, cores, &package))
		cores++;
	return cores;
}

/* Opens sockets, and cores too if there is room for all of them. */
static int open_amd_energy(struct hwmon_source *self, int chip_fd, const struct energy_env *env,
			   struct energy_why *why)
{
	bool cores = count_cores(env) + MAX_SOCKETS <= ENERGY_MAX_DOMAINS;

	for (unsigned i = 1; i <= MAX_INPUTS; i++) {
		char path[32], label[TEXT_BYTES];
		unsigned number, package;
		int end = 0, error = 0;

		snprintf(path, sizeof(path), "energy%u_label", i);
		if (energy_read_text(chip_fd, path, label, sizeof(label)) == -ENOENT)
			break;
		snprintf(path, sizeof(path), "energy%u_input", i);
		if (sscanf(label, "Esocket%4u%n", &package, &end) == 1 && !label[end] &&
		    energy_has_package(env, package))
			error = add_input(self, chip_fd, path, package, "package",
					  QJ_DOMAIN_COUNTER, RAPL_PERIOD_NS, why);
		else if (cores && sscanf(label, "Ecore%4u%n", &number, &end) == 1 && !label[end] &&
			 package_of_core(env, number, &package))
			error = add_input(self, chip_fd, path, package, "core", QJ_DOMAIN_COUNTER,
					  RAPL_PERIOD_NS, why);
		if (error)
			return error;
	}
	return energy_check_packages(&self->base, env, why);
}

const struct hwmon_chip hwmon_chips[] = {
    {"power_meter", open_power_meter},
    {"amd_energy", open_amd_energy},
};
const size_t hwmon_chip_count = sizeof(hwmon_chips) / sizeof(*hwmon_chips);
