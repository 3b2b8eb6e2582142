/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Asks the root part to load and attach the programs as our skeleton is configured. */
#ifndef QJ_LOADING_H
#define QJ_LOADING_H

#include <stdbool.h>

#include "probes.h"

/*
 * Has the programs loaded as `probes->skeleton`, opened but not loaded, is configured. Its `bss`
 * and `probes->batches_fd` then are the loaded ones, and so are the other maps that the tracer
 * works with, except on early kernels. Returns 0 or a negative errno.
 */
int loading_load(struct probes *probes, bool verbose);

#endif /* QJ_LOADING_H */
