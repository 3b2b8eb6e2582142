/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The inputs that the source `hwmon` reads from a chip, and the chips that it knows. */
#ifndef QJ_ENERGY_HWMON_H
#define QJ_ENERGY_HWMON_H

#include "source.h"

#define HWMON_MAX_UW 1000000000000ull /* 1 MW: no machine */

/* A domain's file; for a power input also the counter made from it. */
struct input {
	int fd;
	uint64_t period_ns;
	uint64_t due_ns;  /* when to read a power input again */
	uint64_t last_ns; /* time of the last good reading; 0: none */
	uint64_t energy_nj;
	uint64_t carry; /* the remainder below 1 nJ, in uW ns */
	int error;
};

struct hwmon_source {
	struct energy_source base;
	struct input inputs[ENERGY_MAX_DOMAINS];
};

struct hwmon_chip {
	const char *name;
	/* Adds the chip's domains. After an error the caller drops those already added. */
	int (*open)(struct hwmon_source *self, int chip_fd, const struct energy_env *env,
		    struct energy_why *why);
};

extern const struct hwmon_chip hwmon_chips[];
extern const size_t hwmon_chip_count;

/* Reads a file of one number. Returns 0 or an errno. */
int hwmon_number(int fd, uint64_t *value);

#endif /* QJ_ENERGY_HWMON_H */
