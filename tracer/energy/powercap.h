/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Powercap trees, from the kernel or filled by a hypervisor: their zones. powercap.c has their
 * counters.
 */
#ifndef QJ_ENERGY_POWERCAP_H
#define QJ_ENERGY_POWERCAP_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source.h"

#define ENERGY_MAX_ZONES 256
#define POWERCAP_ROOT	 "/sys/class/powercap"

struct zone {
	unsigned top;
	int sub; /* -1: a top zone */
	unsigned package;
	unsigned die; /* or QJ_WHOLE_PACKAGE */
	char dir[32];
	char name[32]; /* from the file `name`; empty: none */
};

/*
 * Finds "intel-rapl:N" and "intel-rapl:N:M" and sorts them, a top zone before its parts. Another
 * control type exposes the same packages again, so it is read only where there is no such zone.
 * Returns how many, or a negative errno.
 */
int zones_find(int root_fd, struct zone *zones);

/* zones_find() in an open directory. Allocates nothing. */
int zones_list(DIR *root, struct zone *zones);

/* Reads a file of the zone, like energy_read_text(). */
int zone_text(int root_fd, const struct zone *zone, const char *file, char *text, size_t room);

/*
 * Sets the top zone's package, its die and its name in the contract. Returns false for an unknown
 * name. `of_packages`: as in struct energy_env.
 */
bool zone_parse_top(struct zone *zone, bool of_packages, const char **domain);

/* True if an earlier zone has the same package, die or sub zone: joules would count twice. */
bool zone_seen_before(const struct zone *zones, int index);

/*
 * Returns the modulus of a counter in uJ. The register has 32 bits, and the driver shows count *
 * unit / 1000 with the unit in nJ (rapl_unit_xlate() in drivers/powercap/intel_rapl_common.c). So
 * the file contains floor((2^32 - 1) * unit / 1000), while the counter wraps one unit later, at
 * 2^32 * unit / 1000. The unit follows from the file's value. Any other value comes from another
 * driver: its modulus is the value plus 1 uJ.
 */
uint64_t zone_modulus_uj(uint64_t max_uj);

/* Detects zones that appear after this call. NULL: no such directory. */
struct appeared *appeared_new(const char *root);
void appeared_free(struct appeared *appeared); /* accepts NULL */

/* Like energy_appeared(). */
unsigned appeared_poll(struct appeared *appeared, struct qj_domain *found);

#endif /* QJ_ENERGY_POWERCAP_H */
