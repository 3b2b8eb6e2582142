/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Asks the root part to load and attach the programs as our skeleton is configured. */
#ifndef QJ_LOADING_H
#define QJ_LOADING_H

#include <stdbool.h>

#include "shared.h"

#include "qjoule.skel.h"

/*
 * Has the programs loaded as `skeleton`, opened but not loaded, is configured. The maps that the
 * tracer works with, including `bss`, then refer to the loaded ones. Returns 0 or a negative errno;
 * -EOPNOTSUPP: before Linux 5.19 (commit c8644cd0efe7), only root may use open maps in bpf(2) if
 * kernel.unprivileged_bpf_disabled is set.
 */
int loading_load(struct qjoule_bpf *skeleton, bool verbose);

/* The number by which the root part identifies this program. */
unsigned loading_number(const struct qjoule_bpf *skeleton, const struct bpf_program *program);

#endif /* QJ_LOADING_H */
