/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parses the option that selects hardware counters. */
#ifndef QJ_COUNTER_OPTIONS_H
#define QJ_COUNTER_OPTIONS_H

#include "options.h"

/* Parses the option's value. Returns -1 if it is invalid or there are too many. */
int counter_option(struct options *options, const char *value);

#endif /* QJ_COUNTER_OPTIONS_H */
