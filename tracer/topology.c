// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Reads packages, dies and cores of the CPUs from sysfs. */
#include "system.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the first number of a file such as "0-1,4", or `fallback`. */
static unsigned first_number(const char *dir, unsigned cpu, const char *name, unsigned fallback)
{
	char path[PATH_MAX];
	long value;
	FILE *file;

	snprintf(path, sizeof(path), "%s/cpu%u/topology/%s", dir, cpu, name);
	file = fopen(path, "re");
	if (!file)
		return fallback;
	/* physical_package_id may be -1: the firmware did not provide it. */
	if (fscanf(file, "%ld", &value) != 1 || value < 0 || value > UINT16_MAX)
		value = fallback;
	fclose(file);
	return value;
}

/* Parses the numbers of a list such as "0-3,8,10-11". */
static int read_list(const char *path, unsigned list[QJ_MAX_CPUS])
{
	FILE *file = fopen(path, "re");
	unsigned first, last;
	int count = 0;

	if (!file)
		return -errno;
	while (fscanf(file, "%u", &first) == 1) {
		last = first;
		if (fscanf(file, "-%u", &last) < 0)
			last = first;
		for (; first <= last && first < QJ_MAX_CPUS && count < QJ_MAX_CPUS; first++)
			list[count++] = first;
		if (fgetc(file) != ',')
			break;
	}
	fclose(file);
	return count ? count : -ENODATA;
}

/*
 * Numbers the cores within their package. The kernel's core_id is not used: it may repeat from die
 * to die, and is 0 everywhere in some virtual machines.
 */
static void number_cores(struct qj_cpu *cpus, unsigned count)
{
	static unsigned cores_of[UINT16_MAX + 1];

	memset(cores_of, 0, sizeof(cores_of));
	for (unsigned i = 0; i < count; i++) {
		const struct qj_cpu *first = &cpus[i];

		for (unsigned j = 0; j < i; j++)
			if (cpus[j].cpu == cpus[i].sibling)
				first = &cpus[j];
		cpus[i].core = first == &cpus[i] ? cores_of[cpus[i].package]++ : first->core;
	}
}

int topology_read(const char *dir, struct qj_cpu cpus[QJ_MAX_CPUS])
{
	unsigned list[QJ_MAX_CPUS];
	char path[PATH_MAX];
	int count;

	snprintf(path, sizeof(path), "%s/online", dir);
	count = read_list(path, list);
	for (int i = 0; i < count; i++) {
		cpus[i].cpu = list[i];
		cpus[i].package = first_number(dir, list[i], "physical_package_id", 0);
		cpus[i].sibling = first_number(dir, list[i], "thread_siblings_list", list[i]);
		if (cpus[i].sibling > list[i]) /* lists are in order, and include the CPU itself */
			cpus[i].sibling = list[i];
	}
	if (count > 0)
		number_cores(cpus, count);
	return count;
}

bool topology_dies(const char *dir, const struct qj_cpu *cpus, unsigned count,
		   uint16_t dies[QJ_MAX_CPUS])
{
	bool several = false;

	for (unsigned i = 0; i < count; i++) {
		dies[i] = first_number(dir, cpus[i].cpu, "die_id", 0);
		for (unsigned j = 0; j < i; j++)
			several |= cpus[j].package == cpus[i].package && dies[j] != dies[i];
	}
	return several;
}

bool topology_amd(void)
{
#ifdef __x86_64__
	unsigned leaf, vendor[3];
	size_t size = sizeof(vendor);

	return __get_cpuid(0, &leaf, &vendor[0], &vendor[2], &vendor[1]) &&
	       (!memcmp(vendor, "AuthenticAMD", size) || !memcmp(vendor, "HygonGenuine", size));
#else
	return false;
#endif
}

unsigned topology_rings(const struct qj_cpu *cpus, unsigned count, uint16_t next[QJ_MAX_CPUS])
{
	uint16_t last[QJ_MAX_CPUS];
	unsigned threads[QJ_MAX_CPUS] = {0}, most = 1;

	for (unsigned i = 0; i < QJ_MAX_CPUS; i++)
		next[i] = last[i] = i;
	for (unsigned i = 0; i < count; i++) {
		unsigned cpu = cpus[i].cpu, first = cpus[i].sibling;

		if (++threads[first] > most)
			most = threads[first];
		if (cpu == first)
			continue;
		next[last[first]] = cpu;
		next[cpu] = first;
		last[first] = cpu;
	}
	return most;
}

void topology_firsts(const struct qj_cpu *cpus, unsigned count, uint16_t of_core[QJ_MAX_CPUS],
		     uint16_t of_package[QJ_MAX_CPUS])
{
	for (unsigned i = 0; i < QJ_MAX_CPUS; i++)
		of_core[i] = of_package[i] = i;
	for (unsigned i = 0; i < count; i++) {
		unsigned cpu = cpus[i].cpu % QJ_MAX_CPUS;

		of_core[cpu] = cpus[i].sibling;
		for (unsigned j = 0; j < count; j++)
			if (cpus[j].package == cpus[i].package && cpus[j].cpu < of_package[cpu])
				of_package[cpu] = cpus[j].cpu;
	}
}
