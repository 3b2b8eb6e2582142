/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The option that names hardware counters. */
#ifndef QJ_COUNTER_OPTIONS_H
#define QJ_COUNTER_OPTIONS_H

#include "options.h"

/* Takes in the option's value; -1: it is not one, or there are too many. */
int counter_option(struct options *options, const char *value);

#endif /* QJ_COUNTER_OPTIONS_H */
