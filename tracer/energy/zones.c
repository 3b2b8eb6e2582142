// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Zones of a powercap tree: finds them, also later ones, and interprets their names and ranges. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "powercap.h"

/*
 * Control types of the RAPL drivers, the preferred one first. intel_rapl_msr.c and
 * intel_rapl_tpmi.c register "intel-rapl"; TPMI's is called "intel-rapl-tpmi" on some vendors'
 * kernels. "intel-rapl-mmio" repeats packages of "intel-rapl".
 */
static const char *const control_types[] = {"intel-rapl", "intel-rapl-tpmi"};

#define RAPL_COUNTS (1ull << 32) /* ENERGY_STATUS_MASK in intel_rapl_common.c, plus one */

static int zone_order(const void *left, const void *right)
{
	const struct zone *a = left, *b = right;

	if (a->top != b->top)
		return a->top < b->top ? -1 : 1;
	return (a->sub > b->sub) - (a->sub < b->sub);
}

static int find_of_type(DIR *dir, const char *type, struct zone *zones)
{
	int count = 0, type_len = (int)strlen(type);
	struct dirent *entry;

	rewinddir(dir);
	while ((entry = readdir(dir))) {
		struct zone zone = {.sub = -1, .die = QJ_WHOLE_PACKAGE};
		unsigned sub;
		int end = 0, sub_end = 0, matched;
		const char *numbers = entry->d_name + type_len;

		if (strncmp(entry->d_name, type, (size_t)type_len))
			continue;
		matched = sscanf(numbers, ":%4u%n:%4u%n", &zone.top, &end, &sub, &sub_end);
		if (matched < 1 || numbers[matched == 2 ? sub_end : end])
			continue;
		if (matched == 2)
			zone.sub = (int)sub;
		snprintf(zone.dir, sizeof(zone.dir), "%.31s", entry->d_name);
		if (count == ENERGY_MAX_ZONES)
			return -E2BIG;
		zones[count++] = zone;
	}
	if (count > 0)
		qsort(zones, (size_t)count, sizeof(*zones), zone_order);
	return count;
}

int zones_list(DIR *root, struct zone *zones)
{
	int count = 0;

	for (size_t i = 0; !count && i < sizeof(control_types) / sizeof(*control_types); i++)
		count = find_of_type(root, control_types[i], zones);
	return count;
}

int zones_find(int root_fd, struct zone *zones)
{
	DIR *root = fdopendir(dup(root_fd));
	int count = root ? zones_list(root, zones) : -errno;

	if (root)
		closedir(root);
	return count;
}

int zone_text(int root_fd, const struct zone *zone, const char *file, char *text, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", zone->dir, file);
	return energy_read_text(root_fd, path, text, room);
}

static bool is_psys(const struct zone *zone)
{
	return !strncmp(zone->name, "psys", 4);
}

bool zone_parse_top(struct zone *zone, bool of_packages, const char **domain)
{
	int end = 0, die_end = 0;
	unsigned die;

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
	/* "package-%d-die-%d" if packages have several dies: rapl_add_package_cpuslocked(). */
	if (sscanf(zone->name, "package-%4u%n-die-%4u%n", &zone->package, &end, &die, &die_end) < 1)
		return false;
	if (die_end && !of_packages)
		zone->die = die;
	return !zone->name[die_end ? die_end : end];
}

/*
 * Returns true for the same package, die or platform. Each die has a zone of the one platform:
 * "psys" of the first die, and "psys-0" of another die of package 0 (rapl_init_domains() in
 * intel_rapl_common.c).
 */
static bool same_top(const struct zone *a, const struct zone *b)
{
	if (a->package != b->package || is_psys(a) != is_psys(b))
		return false;
	return a->die == b->die || a->die == QJ_WHOLE_PACKAGE || b->die == QJ_WHOLE_PACKAGE;
}

bool zone_seen_before(const struct zone *zones, int index)
{
	const struct zone *zone = &zones[index];

	for (int i = 0; i < index; i++)
		if (zone->sub < 0 ? zones[i].sub < 0 && same_top(&zones[i], zone)
				  : zones[i].top == zone->top && !strcmp(zones[i].name, zone->name))
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

/* ---- zones that appeared after tracing began ---- */

struct appeared {
	DIR *root;
	int count; /* number of known zones */
	struct zone known[ENERGY_MAX_ZONES], now[ENERGY_MAX_ZONES];
};

struct appeared *appeared_new(const char *root)
{
	struct appeared *appeared = calloc(1, sizeof(*appeared));

	if (!appeared)
		return NULL;
	appeared->root = opendir(root);
	if (!appeared->root) {
		free(appeared);
		return NULL;
	}
	appeared->count = zones_list(appeared->root, appeared->known);
	if (appeared->count < 0)
		appeared->count = 0;
	return appeared;
}

void appeared_free(struct appeared *appeared)
{
	if (!appeared)
		return;
	closedir(appeared->root);
	free(appeared);
}

static bool is_known(const struct appeared *appeared, const struct zone *zone)
{
	for (int i = 0; i < appeared->count; i++)
		if (!strcmp(appeared->known[i].dir, zone->dir))
			return true;
	return false;
}

unsigned appeared_poll(struct appeared *appeared, struct qj_domain *found)
{
	int count = zones_list(appeared->root, appeared->now);
	unsigned said = 0, new_top = UINT_MAX;

	for (int i = 0; i < count && said < ENERGY_MAX_DOMAINS; i++) {
		const struct zone *zone = &appeared->now[i];

		if (is_known(appeared, zone) || appeared->count == ENERGY_MAX_ZONES)
			continue;
		appeared->known[appeared->count++] = *zone;
		if (zone->sub >= 0 && zone->top == new_top)
			continue; /* the top zone's parts came with it */
		new_top = zone->top;
		found[said] = (struct qj_domain){
		    .unit_j = 1e-6,
		    .idle_w = NAN,
		    .kind = QJ_DOMAIN_APPEARED,
		    .die = QJ_WHOLE_PACKAGE,
		};
		strncpy(found[said].name, zone->dir, sizeof(found[said].name) - 1);
		said++;
	}
	return said;
}
