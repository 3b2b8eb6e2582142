// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Zones of a powercap tree that were not there when tracing began. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "appeared.h"
#include "zones.h"

struct appeared {
	DIR *root;
	int count; /* of those that are known */
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

unsigned appeared_look(struct appeared *appeared, struct qj_domain *found)
{
	int count = zones_list(appeared->root, appeared->now);
	unsigned said = 0, new_top = UINT_MAX;

	for (int i = 0; i < count && said < ENERGY_MAX_DOMAINS; i++) {
		const struct zone *zone = &appeared->now[i];

		if (is_known(appeared, zone) || appeared->count == ENERGY_MAX_ZONES)
			continue;
		appeared->known[appeared->count++] = *zone;
		if (zone->sub >= 0 && zone->top == new_top)
			continue; /* its parts came with it */
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
