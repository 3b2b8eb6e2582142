// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* PMUs with energy counters, as sysfs describes them (arch/x86/events/rapl.c). */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmu.h"

#define TEXT_BYTES 256
#define MASK_BYTES 8192 /* a list of every second CPU of some thousand */

int pmu_type(int sysfs_fd, uint32_t *type, struct energy_why *why)
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
int pmu_config(int sysfs_fd, const char *name, uint64_t *config, struct energy_why *why)
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

int pmu_unit(int sysfs_fd, const char *name, double *unit_j, struct energy_why *why)
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

int pmu_cpus(int sysfs_fd, const struct energy_env *env, const struct qj_cpu **cpus, unsigned room,
	     struct energy_why *why)
{
	unsigned long first, last;
	char text[MASK_BYTES];
	const char *at = text;
	int got = energy_read_text(sysfs_fd, "cpumask", text, sizeof(text));
	unsigned count = 0;

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
			if (count == room)
				return why_fail(why, -E2BIG, "cpumask names too many CPUs");
			cpus[count++] = cpu;
		}
	} while (*at);
	return (int)count;
}

void pmu_read(int event_fd, uint64_t before_ns, struct qj_energy *out)
{
	ssize_t got = read(event_fd, &out->raw, sizeof(out->raw));
	int error = got < 0 ? errno : 0;

	energy_stamp(out, before_ns, energy_now_ns());
	/* End of file: the event is in error state because its CPU went offline. */
	out->status = (uint32_t)(got >= 0 && got < (ssize_t)sizeof(out->raw) ? EIO : error);
}
