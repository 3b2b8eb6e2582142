// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Lists of CPUs, and sizes of memory that fit into a cache or exceed it. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ul

/* Sizes of common servers, used where /sys has none, as in many virtual Arm machines. */
#define L1_BYTES (32 * KIB)
#define L2_BYTES (1024 * KIB)
#define L3_BYTES (32 * KIB * KIB)

int cpus_parse(const char *text, cpu_set_t *cpus)
{
	CPU_ZERO(cpus);
	for (;;) {
		char *end;
		unsigned long first, last;

		if (*text < '0' || *text > '9')
			return 0;
		first = last = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (last >= CPU_SETSIZE || first > last)
			return 0;
		for (; first <= last; first++)
			CPU_SET(first, cpus);
		if (!*end)
			return CPU_COUNT(cpus);
		if (*end != ',')
			return 0;
		text = end + 1;
	}
}

/* Reads the first line of a cache's file. Returns 0 if there is none. */
static int cache_text(int cpu, int index, const char *file, char *text, int room)
{
	char path[128];
	FILE *stream;
	int ok;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
		 file);
	stream = fopen(path, "re");
	if (!stream)
		return 0;
	ok = fgets(text, room, stream) != NULL;
	fclose(stream);
	text[strcspn(text, "\n")] = '\0';
	return ok;
}

struct cache {
	int level;
	size_t bytes;
	int sharers; /* number of CPUs of `all` that share the cache */
};

/* Finds the data cache of a level; level 0: the last level. */
static struct cache find_cache(int cpu, int level, const cpu_set_t *all)
{
	struct cache found = {.sharers = 1};
	char text[4096], type[32];

	for (int index = 0; cache_text(cpu, index, "level", text, sizeof(text)); index++) {
		struct cache cache = {.level = atoi(text), .sharers = 1};
		cpu_set_t shared;
		char *unit;

		if (!cache_text(cpu, index, "type", type, sizeof(type)) ||
		    !strcmp(type, "Instruction") ||
		    !cache_text(cpu, index, "size", text, sizeof(text)))
			continue;
		cache.bytes = strtoul(text, &unit, 10) * (*unit == 'M' ? KIB * KIB : KIB);
		if (cache_text(cpu, index, "shared_cpu_list", text, sizeof(text)) &&
		    cpus_parse(text, &shared)) {
			CPU_AND(&shared, &shared, all);
			cache.sharers = CPU_COUNT(&shared) ? CPU_COUNT(&shared) : 1;
		}
		if (cache.bytes && (level ? cache.level == level : cache.level > found.level))
			found = cache;
	}
	return found;
}

static size_t available_bytes(void)
{
	char line[128];
	unsigned long kib = 0;
	FILE *stream = fopen("/proc/meminfo", "re");

	while (stream && fgets(line, sizeof(line), stream))
		if (sscanf(line, "MemAvailable: %lu kB", &kib) == 1)
			break;
	if (stream)
		fclose(stream);
	return kib * KIB;
}

size_t place_bytes(enum footprint footprint, int cpu, const cpu_set_t *all, int *enough)
{
	int level = footprint == FOOTPRINT_L1 ? 1 : footprint == FOOTPRINT_L2 ? 2 : 0;
	struct cache cache = find_cache(cpu, level, all);
	size_t share, most;

	switch (footprint) {
	case FOOTPRINT_NONE:
		return 0;
	case FOOTPRINT_L1:
		/* Half of the cache, divided by the siblings that share it. */
		return (cache.bytes ? cache.bytes : L1_BYTES) / 2 / (size_t)cache.sharers;
	case FOOTPRINT_L2:
		return (cache.bytes ? cache.bytes : L2_BYTES) / 2 / (size_t)cache.sharers;
	case FOOTPRINT_MEMORY:
		break;
	}
	/* On machines without a third level, the level two cache also has memory behind it. */
	share = (cache.bytes ? cache.bytes : L3_BYTES) / (size_t)cache.sharers;
	most = available_bytes() / 4 / (size_t)CPU_COUNT(all);
	if (most < 2 * share)
		*enough = 0;
	return most < 4 * share ? most : 4 * share;
}
