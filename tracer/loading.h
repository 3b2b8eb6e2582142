/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The root part loads and attaches the programs that our skeleton is configured for. */
#ifndef QJ_LOADING_H
#define QJ_LOADING_H

#include <stdbool.h>

#include "shared.h"

#include "qjoule.skel.h"

/*
 * Has the programs loaded as `skeleton`, opened but not loaded, is configured. Its maps that the
 * tracer works with are then the loaded ones, `bss` too. Returns 0 or a negative errno;
 * -EOPNOTSUPP: before Linux 5.19 (commit c8644cd0efe7), bpf(2) lets only root work with open maps
 * where kernel.unprivileged_bpf_disabled is set.
 */
int loading_load(struct qjoule_bpf *skeleton, bool verbose);

/* The program's number, by which the root part knows it. */
unsigned loading_number(const struct qjoule_bpf *skeleton, const struct bpf_program *program);

#endif /* QJ_LOADING_H */
