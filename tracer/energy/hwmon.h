/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the source `hwmon` reads of a chip, and which chips it knows. */
#ifndef QJ_ENERGY_HWMON_H
#define QJ_ENERGY_HWMON_H

#include "source.h"

#define HWMON_MAX_UW 1000000000000ull /* 1 MW: no machine */

/* A domain's file, and for a power the counter that is made of it. */
struct input {
	int fd;
	uint64_t period_ns;
	uint64_t due_ns;  /* when a power is read again */
	uint64_t last_ns; /* of the last good reading; 0: none */
	uint64_t energy_nj;
	uint64_t carry; /* what is less than 1 nJ, in uW ns */
	int error;
};

struct hwmon_source {
	struct energy_source base;
	struct input inputs[ENERGY_MAX_DOMAINS];
};

struct hwmon_chip {
	const char *name;
	/* Adds the chip's domains. On an error some may have been added: the caller drops them. */
	int (*open)(struct hwmon_source *self, int chip_fd, const struct energy_env *env,
		    struct energy_why *why);
};

extern const struct hwmon_chip hwmon_chips[];
extern const size_t hwmon_chip_count;

/* Reads a file of one number. Returns 0 or an errno. */
int hwmon_number(int fd, uint64_t *value);

#endif /* QJ_ENERGY_HWMON_H */
