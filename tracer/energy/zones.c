// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Zones of a powercap tree: finds them, and interprets their names and ranges. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source.h"
#include "zones.h"

#define ZONE_PREFIX "intel-rapl:"
#define RAPL_COUNTS (1ull << 32) /* ENERGY_STATUS_MASK in intel_rapl_common.c, plus one */

static int zone_order(const void *left, const void *right)
{
	const struct zone *a = left, *b = right;

	if (a->top != b->top)
		return a->top < b->top ? -1 : 1;
	return (a->sub > b->sub) - (a->sub < b->sub);
}

int zones_find(int root_fd, struct zone *zones)
{
	int count = 0;
	struct dirent *entry;
	DIR *dir = fdopendir(dup(root_fd));

	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		struct zone zone = {.sub = -1};
		unsigned sub;
		int end = 0, sub_end = 0;
		int matched = sscanf(entry->d_name, ZONE_PREFIX "%4u%n:%4u%n", &zone.top, &end,
				     &sub, &sub_end);

		if (matched < 1 || entry->d_name[matched == 2 ? sub_end : end])
			continue;
		if (matched == 2)
			zone.sub = (int)sub;
		snprintf(zone.dir, sizeof(zone.dir), "%.31s", entry->d_name);
		if (count == ENERGY_MAX_ZONES) {
			count = -E2BIG;
			break;
		}
		zones[count++] = zone;
	}
	closedir(dir);
	if (count > 0)
		qsort(zones, (size_t)count, sizeof(*zones), zone_order);
	return count;
}

int zone_text(int root_fd, const struct zone *zone, const char *file, char *text, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", zone->dir, file);
	return energy_read_text(root_fd, path, text, room);
}

bool zone_understand_top(struct zone *zone, const char **domain)
{
	int end = 0, die_end = 0;

	if (!zone->name[0]) {
		zone->package = zone->top;
		*domain = "package";
		return true;
	}
	/* psys of a second or later package is called "psys-N". */
	if (!strcmp(zone->name, "psys") ||
	    (sscanf(zone->name, "psys-%4u%n", &zone->package, &end) == 1 && !zone->name[end])) {
		*domain = "psys";
		return true;
	}
	*domain = "package";
	return sscanf(zone->name, "package-%4u%n-die-%*u%n", &zone->package, &end, &die_end) >= 1 &&
	       !zone->name[die_end ? die_end : end];
}

bool zone_seen_before(const struct zone *zones, int index)
{
	const struct zone *zone = &zones[index];

	for (int i = 0; i < index; i++)
		if (zone->name[0] && !strcmp(zones[i].name, zone->name) &&
		    (zone->sub < 0 ? zones[i].sub < 0 : zones[i].top == zone->top))
			return true;
	return false;
}

uint64_t zone_modulus_uj(uint64_t max_uj)
{
	uint64_t unit_nj;

	if (max_uj >= UINT64_MAX / 2000) /* beyond any unit; the product must not overflow */
		return max_uj == UINT64_MAX ? 0 : max_uj + 1;
	unit_nj = (max_uj * 1000 + RAPL_COUNTS - 2) / (RAPL_COUNTS - 1);
	if (unit_nj && (RAPL_COUNTS - 1) * unit_nj / 1000 == max_uj)
		return (RAPL_COUNTS * unit_nj + 500) / 1000;
	return max_uj + 1;
}
