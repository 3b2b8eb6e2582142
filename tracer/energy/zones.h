/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Zones of a powercap tree: finding them, and what their names and ranges mean. */
#ifndef QJ_ENERGY_ZONES_H
#define QJ_ENERGY_ZONES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENERGY_MAX_ZONES 256

struct zone {
	unsigned top;
	int sub; /* -1: a top zone */
	unsigned package;
	char dir[32];
	char name[32]; /* as in the file `name`; empty: none */
};

/*
 * Finds "intel-rapl:N" and "intel-rapl:N:M" and sorts them, a top zone before its parts.
 * Returns how many, or a negative errno.
 */
int zones_find(int root_fd, struct zone *zones);

/* A file of the zone, as energy_read_text(). */
int zone_text(int root_fd, const struct zone *zone, const char *file, char *text, size_t room);

/*
 * Sets the top zone's package, and what the zone is called in the contract. False: a name that says
 * nothing.
 */
bool zone_understand_top(struct zone *zone, const char **domain);

/* The same package, or the same part of one, twice would be the same joules twice. */
bool zone_seen_before(const struct zone *zones, int index);

/*
 * The modulus of a counter in uJ. The register has 32 bits and the driver shows count * unit / 1000
 * with the unit in nJ (rapl_unit_xlate() in drivers/powercap/intel_rapl_common.c), so the file says
 * floor((2^32 - 1) * unit / 1000) and the counter wraps one unit later, at 2^32 * unit / 1000. The
 * unit follows from the file. A range that is no such number comes from another driver: plus 1 uJ.
 */
uint64_t zone_modulus_uj(uint64_t max_uj);

#endif /* QJ_ENERGY_ZONES_H */
