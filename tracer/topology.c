// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "topology.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The first number of a file such as "0-1,4", or `fallback`. */
static unsigned first_number(const char *dir, unsigned cpu, const char *name, unsigned fallback)
{
	char path[PATH_MAX];
	unsigned value;
	FILE *file;

	snprintf(path, sizeof(path), "%s/cpu%u/topology/%s", dir, cpu, name);
	file = fopen(path, "re");
	if (!file)
		return fallback;
	if (fscanf(file, "%u", &value) != 1) /* physical_package_id may be -1 */
		value = fallback;
	fclose(file);
	return value;
}

/* Calls for each number of a list such as "0-3,8,10-11". */
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
		cpus[i].core = first_number(dir, list[i], "core_id", list[i]);
		cpus[i].sibling = first_number(dir, list[i], "thread_siblings_list", list[i]);
	}
	return count;
}
